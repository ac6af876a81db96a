"""Engine core and front end in one thread: a message is a call."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, cast

from enginecore import wire
from enginecore.errors import EngineCoreError, EngineDeadError
from enginecore.interfaces import EngineCoreApi, EngineCoreClient, Transport
from enginecore.messages import EngineCoreOutputs, EngineCoreRequest, EngineInfo, FinishReason
from enginecore.plugin import TransportContext


class Carrier(Protocol):
    """Carrier of messages to the other side."""

    def request(self, request: EngineCoreRequest) -> EngineCoreRequest:
        """The request as the engine core gets it."""
        ...

    def outputs(self, outputs: EngineCoreOutputs) -> EngineCoreOutputs:
        """The outputs as the front end gets them."""
        ...


class Direct:
    """Hands them over."""

    def request(self, request: EngineCoreRequest) -> EngineCoreRequest:
        return request

    def outputs(self, outputs: EngineCoreOutputs) -> EngineCoreOutputs:
        return outputs


class ThroughWire:
    """Copies as the other side of a process boundary would get them."""

    def request(self, request: EngineCoreRequest) -> EngineCoreRequest:
        return cast(wire.AddRequest, wire.decode_client_message(wire.encode(wire.AddRequest(request=request)))).request

    def outputs(self, outputs: EngineCoreOutputs) -> EngineCoreOutputs:
        return cast(
            wire.StepOutputs, wire.decode_server_message(wire.encode(wire.StepOutputs(outputs=outputs)))
        ).outputs


class InprocTransport(Transport):
    """Runs the engine core in the front end's thread."""

    def __init__(self, carrier: Carrier, context: TransportContext) -> None:
        self._carrier = carrier
        self._context = context

    def connect(self) -> "InprocClient":
        return InprocClient(self._context, self._carrier)


class InprocClient(EngineCoreClient):
    """Runs a step when outputs are asked for. Not thread-safe: the caller's thread runs the engine
    core.
    """

    def __init__(self, context: TransportContext, carrier: Carrier) -> None:
        self._core: EngineCoreApi = context.start_engine_core()
        self._context = context
        self._carrier = carrier
        self._due: deque[EngineCoreOutputs] = deque()
        self._closed = False

    @property
    def info(self) -> EngineInfo:
        return self._core.info

    @property
    def client_index(self) -> int:
        """The engine core has no other front end."""
        return 0

    def add_request(self, request: EngineCoreRequest) -> None:
        self._check_open()
        self._core.add_request(self._carrier.request(request))

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        if not self._closed:
            self._core.abort_requests(request_ids)

    def get_output(self) -> EngineCoreOutputs:
        """As in `EngineCoreClient`.

        Raises:
            EngineDeadError: the engine core has failed.
            EngineCoreError: it is paused, and only this thread could resume it.
        """
        if not self._due and not self._closed:
            self._step()
        if self._due:
            return self._due.popleft()
        self._check_open()
        return EngineCoreOutputs(idle=not (self._core.has_requests() or self._is_held_up()))

    def call_utility(self, name: str, *args: Any) -> Any:
        self._check_open()
        return self._core.call_utility(name, *args)

    def shutdown(self) -> None:
        """Let running requests go on for `shutdown_timeout` seconds, then end the rest with reason
        ABORT.

        `get_output` still gives what came of it.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._drain()
        finally:
            self._core.shutdown()

    def _step(self) -> None:
        if self._core.has_requests():
            self._keep(self._core.advance()[0])
        elif self._is_held_up():
            raise EngineCoreError(
                "the engine core is paused while requests are unfinished, and this thread alone can resume it: to wait "
                'for outputs would be to wait for ever; call_utility("resume") first, or abort them'
            )

    def _is_held_up(self) -> bool:
        """Whether requests are unfinished, and only `resume` is missing."""
        return self._core.is_paused and self._core.has_unfinished_requests()

    def _drain(self) -> None:
        clock = self._context.clock
        deadline = clock.now() + self._context.shutdown_timeout
        try:
            while clock.now() < deadline and self._core.has_requests():
                self._keep(self._core.advance()[0])
            self._keep(self._core.finish_all(FinishReason.ABORT))
        except EngineDeadError:
            return  # `get_output` raises it too; nothing is left to drain

    def _keep(self, outputs: Mapping[int, EngineCoreOutputs]) -> None:
        self._due.extend(self._carrier.outputs(due) for due in outputs.values())

    def _check_open(self) -> None:
        if self._closed:
            raise EngineDeadError("the engine core was shut down")
