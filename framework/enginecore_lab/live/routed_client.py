"""One asyncio client over several engine cores."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from enginecore.errors import ConfigurationError, EngineCoreError, EngineDeadError
from enginecore.interfaces import AsyncEngineCoreClient
from enginecore.messages import (
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineInfo,
    FinishReason,
    SchedulerStats,
)

Route = Callable[[EngineCoreRequest], int]
"""Says which engine core a request goes to, by its place."""

MUST_AGREE = ("model", "vocab_size", "eos_token_ids", "dtype")


class RoutedClient(AsyncEngineCoreClient):
    """Sends each request to one engine core, and reads from all of them.

    The end of one engine core is the end of its requests only, by an error that names it; who is sent there later is
    refused. The client has failed when all of them have.

    Args:
        clients: One per engine core, of one model; this object's own from now on.
        route: Asked once per request.
        on_outputs: Told of what each engine core gives, before anybody else is.

    Raises:
        ConfigurationError: there is none, or they do not serve the same model.
    """

    def __init__(
        self,
        clients: Sequence[AsyncEngineCoreClient],
        route: Route,
        on_outputs: Callable[[int, EngineCoreOutputs], None] = lambda place, outputs: None,
    ) -> None:
        if not clients:
            raise ConfigurationError("a routed client needs at least one engine core")
        self._clients = list(clients)
        self._info = _common_info([client.info for client in clients])
        self._route = route
        self._on_outputs = on_outputs
        self._owners: dict[str, int] = {}
        self._readers: dict[int, asyncio.Task[EngineCoreOutputs]] = {}
        self._unreadable: set[int] = set()

    @property
    def clients(self) -> Sequence[AsyncEngineCoreClient]:
        """One per engine core."""
        return tuple(self._clients)

    @property
    def info(self) -> EngineInfo:
        """Of the first one; the limits of a request are those of the smallest."""
        return self._info

    @property
    def client_index(self) -> int:
        return self._clients[0].client_index

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
        place = self._route(request)
        self._clients[place].add_request(request)
        self._owners[request.request_id] = place

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        by_place: dict[int, list[str]] = {}
        for request_id in request_ids:
            if (place := self._owners.pop(request_id, None)) is not None:
                by_place.setdefault(place, []).append(request_id)
        for place, ids in by_place.items():
            with suppress(EngineDeadError):  # then they have ended anyhow
                self._clients[place].abort_requests(ids)

    async def get_output(self) -> EngineCoreOutputs:
        """The next outputs of any of them. `idle` is never set: what one of them has lost ends here, by an error."""
        readers = self._reading()
        if not readers:
            raise EngineDeadError("all engine cores have failed") from self.failure
        if not any(reader.done() for reader in readers.values()):
            await asyncio.wait(readers.values(), return_when=asyncio.FIRST_COMPLETED)
        place = next(place for place, reader in readers.items() if reader.done())
        outputs = self._outputs_of(place, self._readers.pop(place))
        self._on_outputs(place, outputs)
        return outputs

    async def call_utility(self, name: str, *args: Any) -> Any:
        """Call it in every engine core that works. Counters are summed; else it is the first one's value."""
        working = [client for client in self._clients if client.failure is None]
        if not working:
            raise EngineDeadError(f"utility {name!r}: all engine cores have failed") from self.failure
        values = await asyncio.gather(*(client.call_utility(name, *args) for client in working))
        if all(isinstance(value, bool) for value in values):
            return all(values)
        return _sum(values) if all(isinstance(value, SchedulerStats) for value in values) else values[0]

    async def drain(self) -> None:
        await asyncio.gather(*(client.drain() for client in self._clients))

    def shutdown(self) -> None:
        for client in self._clients:
            client.shutdown()

    # -- reading -----------------------------------------------------------------------------------------------------

    def _reading(self) -> "dict[int, asyncio.Task[EngineCoreOutputs]]":
        """One task per engine core that can still be read. Those of an event loop that is over have been cancelled by
        it, or hold outputs that nobody took.
        """
        for place in {*range(len(self._clients))} - self._unreadable:
            reader = self._readers.get(place)
            if reader is None or reader.cancelled():
                reading = self._clients[place].get_output()
                self._readers[place] = asyncio.create_task(reading, name=f"enginecore-arm-{place}")
        return self._readers

    def _outputs_of(self, place: int, reader: "asyncio.Task[EngineCoreOutputs]") -> EngineCoreOutputs:
        """What it gave, with an end for whoever it will never end."""
        try:
            outputs = reader.result()
        except EngineDeadError as error:
            self._unreadable.add(place)
            return self._ends(place, f"engine core {place} has failed: {error}")
        for output in outputs.outputs:
            if output.finish_reason is not None:
                self._owners.pop(output.request_id, None)
        if not outputs.idle:
            return outputs
        lost = self._ends(place, f"engine core {place} has nothing left to do, and never ended this request")
        return EngineCoreOutputs(outputs=[*outputs.outputs, *lost.outputs], timestamp=outputs.timestamp)

    def _ends(self, place: int, error: str) -> EngineCoreOutputs:
        left = [request_id for request_id, owner in self._owners.items() if owner == place]
        for request_id in left:
            del self._owners[request_id]
        return EngineCoreOutputs(
            outputs=[EngineCoreOutput(each, [], finish_reason=FinishReason.ERROR, error=error) for each in left]
        )


def _common_info(infos: Sequence[EngineInfo]) -> EngineInfo:
    first = infos[0]
    for name in MUST_AGREE:
        values = [getattr(info, name) for info in infos]
        if any(value != values[0] for value in values):
            raise ConfigurationError(f"engine cores behind one front end must have the same {name}, got {values}")
    return msgspec.structs.replace(first, max_model_len=min(info.max_model_len for info in infos))


def _sum(stats: Sequence[SchedulerStats]) -> SchedulerStats:
    return SchedulerStats(**{name: sum(getattr(each, name) for each in stats) for name in stats[0].__struct_fields__})
