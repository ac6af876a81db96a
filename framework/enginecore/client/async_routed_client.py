"""An asyncio client that sends each request to one of several engine cores."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from enginecore.client.routing import OutputCallback, Route, RoutingTable, common_info, folded, ignore_outputs
from enginecore.errors import EngineCoreError, EngineDeadError
from enginecore.interfaces import AsyncEngineCoreClient
from enginecore.messages import EngineCoreOutputs, EngineCoreRequest, EngineInfo


class AsyncRoutedClient(AsyncEngineCoreClient):
    """Sends each request to one engine core, and reads from all of them.

    The failure of one engine core ends its requests alone, by an error that names it; requests that
    are sent there later are refused. The client has failed when all of them have.
    """

    def __init__(
        self, clients: Sequence[AsyncEngineCoreClient], route: Route, on_outputs: OutputCallback = ignore_outputs
    ) -> None:
        """A client over others, which it owns from here on.

        Args:
            clients: One per engine core, of one model.
            route: Chooses the engine core of each request.
            on_outputs: Called with what each engine core gives, before the front end gets it.

        Raises:
            ConfigurationError: there are no clients, or they serve different models.
        """
        self._clients = list(clients)
        self._info = common_info([client.info for client in clients])
        self._table = RoutingTable(len(self._clients), route)
        self._on_outputs = on_outputs
        self._readers: dict[int, asyncio.Task[EngineCoreOutputs]] = {}

    @property
    def clients(self) -> Sequence[AsyncEngineCoreClient]:
        """One per engine core."""
        return tuple(self._clients)

    @property
    def info(self) -> EngineInfo:
        """Facts of the first engine core, with the smallest limit of a request's length."""
        return self._info

    @property
    def client_index(self) -> int:
        """A random number: each engine core numbers its front ends by itself."""
        return self._table.client_index

    @property
    def address(self) -> Mapping[str, Any]:
        raise EngineCoreError(
            f"{len(self._clients)} engine cores have no common address: attach to the client of one of them"
        )

    @property
    def failure(self) -> BaseException | None:
        failures = [client.failure for client in self._clients]
        return failures[0] if all(failures) else None

    def add_request(self, request: EngineCoreRequest) -> None:
        index = self._table.choose(request)
        self._clients[index].add_request(request)
        self._table.add_request(request.request_id, index)

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        for index, ids in self._table.remove_requests(request_ids).items():
            with suppress(EngineDeadError):  # they have ended with it
                self._clients[index].abort_requests(ids)

    async def get_output(self) -> EngineCoreOutputs:
        """The next outputs of any of them. `idle` is never set."""
        self._start_readers()
        if not self._readers:
            raise self._table.dead_error()
        if not any(reader.done() for reader in self._readers.values()):
            await asyncio.wait(self._readers.values(), return_when=asyncio.FIRST_COMPLETED)
        index = next(index for index, reader in self._readers.items() if reader.done())
        outputs = self._outputs_of(index, self._readers.pop(index))
        self._on_outputs(index, outputs)
        return outputs

    async def call_utility(self, name: str, *args: Any) -> Any:
        """Call it in every engine core that works; see `folded` for how the values become one."""
        calls = (client.call_utility(name, *args) for client in self._clients if client.failure is None)
        return folded(name, await asyncio.gather(*calls, return_exceptions=True))

    async def drain(self) -> None:
        await asyncio.gather(*(client.drain() for client in self._clients))

    def shutdown(self) -> None:
        for client in self._clients:
            client.shutdown()

    # -- reading -----------------------------------------------------------------------------------

    def _start_readers(self) -> None:
        """One task per engine core that can still be read. An event loop that has ended has
        cancelled its tasks, or left them done with outputs that were not taken.
        """
        for index in self._table.running:
            reader = self._readers.get(index)
            if reader is None or reader.cancelled():
                reading = self._clients[index].get_output()
                self._readers[index] = asyncio.create_task(reading, name=f"enginecore-read-{index}")

    def _outputs_of(self, index: int, reader: "asyncio.Task[EngineCoreOutputs]") -> EngineCoreOutputs:
        """The outputs of an engine core; if it has failed, the ends of its requests."""
        try:
            return self._table.settle(index, reader.result())
        except EngineDeadError as error:
            return self._table.fail(index, error)
