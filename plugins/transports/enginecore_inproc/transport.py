"""Engine core and front end in one thread: a message is a call."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from enginecore.errors import EngineDeadError
from enginecore.interfaces import EngineCoreApi
from enginecore.messages import EngineCoreOutputs, EngineCoreRequest, EngineInfo, FinishReason
from enginecore.plugin import TransportContext

M = TypeVar("M", bound=msgspec.Struct)


class InprocTransport:
    """Fills `Transport`."""

    def __init__(self, codec_round_trip: bool, context: TransportContext) -> None:
        self._carry: Callable[[Any], Any] = through_codec if codec_round_trip else as_it_is
        self._context = context

    def connect(self) -> "InprocClient":
        return InprocClient(self._context, self._carry)


class InprocClient:
    """Fills `EngineCoreClient`. Not thread-safe: whoever calls runs the engine core."""

    def __init__(self, context: TransportContext, carry: Callable[[Any], Any]) -> None:
        self._core: EngineCoreApi = context.start_engine_core()
        self._context = context
        self._carry = carry
        self._due: deque[EngineCoreOutputs] = deque()
        self._closed = False

    @property
    def info(self) -> EngineInfo:
        return self._core.info

    def add_request(self, request: EngineCoreRequest) -> None:
        self._check_open()
        self._core.add_request(self._carry(request))

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        if not self._closed:
            self._core.abort_requests(request_ids)

    def get_output(self) -> EngineCoreOutputs:
        if not self._due and not self._closed and self._core.has_requests():
            self._keep(self._core.advance()[0])
        if self._due:
            return self._due.popleft()
        self._check_open()
        return EngineCoreOutputs(idle=not self._core.has_requests())

    def call_utility(self, name: str, *args: Any) -> Any:
        self._check_open()
        return self._core.call_utility(name, *args)

    def shutdown(self) -> None:
        """Let running requests go on for `shutdown_timeout` seconds, then end the rest with reason ABORT.

        `get_output` still gives what came of it.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._drain()
        finally:
            self._core.shutdown()

    def _drain(self) -> None:
        clock = self._context.clock
        deadline = clock.now() + self._context.shutdown_timeout
        try:
            while clock.now() < deadline and self._core.has_requests():
                self._keep(self._core.advance()[0])
            self._keep(self._core.finish_all(FinishReason.ABORT))
        except EngineDeadError:
            return  # whoever asked for outputs was told; nothing is left to drain

    def _keep(self, outputs: Mapping[int, EngineCoreOutputs]) -> None:
        self._due.extend(self._carry(due) for due in outputs.values())

    def _check_open(self) -> None:
        if self._closed:
            raise EngineDeadError("the engine core was shut down")


def as_it_is(message: M) -> M:
    """Hand a message over."""
    return message


def through_codec(message: M) -> M:
    """What the other side of a process boundary would get."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message))
