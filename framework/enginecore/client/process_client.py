"""The synchronous client half for an engine core in another process."""

import threading
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from enginecore.client.answers import value_of
from enginecore.client.connection import Connection
from enginecore.interfaces import EngineCoreClient
from enginecore.messages import EngineCoreOutputs, EngineCoreRequest, EngineInfo
from enginecore.wire import ServerMessage, UtilityReply

SHUT_DOWN = "the engine core was shut down"


class ProcessClient(EngineCoreClient):
    """Synchronous client of an engine core in another process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._due: deque[EngineCoreOutputs] = deque()
        self._closing = threading.RLock()
        self._closed = False
        # a client that is not shut down leaves nothing behind, not even at the interpreter's exit
        self._release = weakref.finalize(self, connection.close, SHUT_DOWN)

    @property
    def info(self) -> EngineInfo:
        return self._connection.info

    @property
    def client_index(self) -> int:
        return self._connection.client_index

    @property
    def address(self) -> Mapping[str, Any]:
        """Where the engine core is, for `attach_client` in other processes. Secret: it grants
        access.
        """
        return self._connection.address

    @property
    def engine_core_pid(self) -> int | None:
        """Process id of the engine core, for the client that started it."""
        return None if self._connection.process is None else self._connection.process.pid

    def add_request(self, request: EngineCoreRequest) -> None:
        self._connection.add_request(request)

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        self._connection.abort_requests(list(request_ids))

    def get_output(self) -> EngineCoreOutputs:
        while (outputs := self.take_output()) is None:
            self._connection.wait(None)
        return outputs

    def take_output(self) -> EngineCoreOutputs | None:
        while not self._due:
            if (message := self._connection.take()) is not None:
                self._keep(message)
            elif self._connection.is_idle:
                return EngineCoreOutputs(idle=True)
            else:
                return None
        return self._due.popleft()

    @property
    def filenos(self) -> Sequence[int]:
        return self._connection.filenos

    def call_utility(self, name: str, *args: Any) -> Any:
        call_id = self._connection.call(name, list(args))
        while True:
            message = self._connection.take()
            if message is None:
                self._connection.wait(None)
            elif (reply := self._keep(message)) is not None and reply.call_id == call_id:
                return value_of(name, reply)

    def shutdown(self) -> None:
        with self._closing:
            if self._closed or self._connection.is_forked:
                return
            self._closed = True
            try:
                self._connection.leave()
            finally:
                self._release()

    def _keep(self, message: ServerMessage) -> UtilityReply | None:
        """Keep a message for `get_output`, or return it if it is a reply."""
        understood = self._connection.understand(message)
        if isinstance(understood, UtilityReply):
            return understood
        if not understood.idle:  # that one is true now, and may not be when it is asked for
            self._due.append(understood)
        return None
