"""A synchronous client that sends each request to one of several engine cores."""

import select
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from enginecore.client.routing import OutputCallback, Route, RoutingTable, common_info, folded, ignore_outputs
from enginecore.errors import EngineDeadError
from enginecore.interfaces import EngineCoreClient
from enginecore.messages import EngineCoreOutputs, EngineCoreRequest, EngineInfo


class RoutedClient(EngineCoreClient):
    """Sends each request to one engine core, and reads in turn from those that have unfinished
    requests.

    The failure of one engine core ends its requests alone, by an error that names it; requests that
    are sent there later are refused. The client has failed when all of them have.
    """

    def __init__(
        self, clients: Sequence[EngineCoreClient], route: Route, on_outputs: OutputCallback = ignore_outputs
    ) -> None:
        """As `AsyncRoutedClient`."""
        self._clients = list(clients)
        self._info = common_info([client.info for client in clients])
        self._table = RoutingTable(len(self._clients), route)
        self._on_outputs = on_outputs
        self._turns = deque(range(len(self._clients)))  # the order in which they are read

    @property
    def clients(self) -> Sequence[EngineCoreClient]:
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
    def filenos(self) -> Sequence[int]:
        return [fd for index in self._table.busy for fd in self._clients[index].filenos]

    def add_request(self, request: EngineCoreRequest) -> None:
        index = self._table.choose(request)
        self._clients[index].add_request(request)
        self._table.add_request(request.request_id, index)

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        for index, ids in self._table.remove_requests(request_ids).items():
            with suppress(EngineDeadError):  # they have ended with it
                self._clients[index].abort_requests(ids)

    def get_output(self) -> EngineCoreOutputs:
        """The next outputs of any of them. `idle` is set when none has an unfinished request."""
        while (outputs := self.take_output()) is None:
            poll = select.poll()
            for fd in self.filenos:
                poll.register(fd, select.POLLIN)
            poll.poll()
        return outputs

    def take_output(self) -> EngineCoreOutputs | None:
        """The next outputs of any of them that can be had without waiting. A client without
        `filenos` runs a step.
        """
        if not (busy := self._table.busy):
            return self._idle()
        for _ in self._clients:
            index = self._turns[0]
            self._turns.rotate(-1)
            if index in busy and (outputs := self._take_from(index)) is not None:
                self._on_outputs(index, outputs)
                return outputs
        return None

    def call_utility(self, name: str, *args: Any) -> Any:
        """Call it in every engine core that works; see `folded` for how the values become one."""
        return folded(name, [self._call(client, name, args) for client in self._clients])

    def shutdown(self) -> None:
        with ExitStack() as stack:  # all of them, whatever becomes of one
            for client in reversed(self._clients):
                stack.callback(client.shutdown)

    def _call(self, client: EngineCoreClient, name: str, args: Sequence[Any]) -> Any:
        try:
            return client.call_utility(name, *args)
        except Exception as error:
            return error

    def _take_from(self, index: int) -> EngineCoreOutputs | None:
        """The outputs of an engine core; if it has failed, the ends of its requests."""
        try:
            outputs = self._clients[index].take_output()
        except EngineDeadError as error:
            return self._table.fail(index, error)
        return None if outputs is None else self._table.settle(index, outputs)

    def _idle(self) -> EngineCoreOutputs:
        """No request is unfinished: idle, unless no engine core is left."""
        for index in self._table.running:
            self._take_from(index)
        if not self._table.running:
            raise self._table.dead_error()
        return EngineCoreOutputs(idle=True)
