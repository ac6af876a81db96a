"""Transport: how front end and engine core talk. The front-end class picks the half, `transport.use` the transport."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from enginecore.messages import EngineCoreOutputs, EngineCoreRequest, EngineInfo, FinishReason


class EngineCoreApi(Protocol):
    """What a transport's server half sees of the engine core. Implemented by the kernel, on one thread."""

    @property
    def info(self) -> EngineInfo:
        """What is in force."""
        ...

    def add_request(self, request: EngineCoreRequest) -> None:
        """Accept a request, or raise InvalidRequestError."""
        ...

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        """End requests without a word."""
        ...

    def has_requests(self) -> bool:
        """Whether `advance` has anything to do."""
        ...

    def advance(self) -> tuple[Mapping[int, EngineCoreOutputs], bool]:
        """One iteration: outputs by client, and whether a forward pass was submitted or settled.

        Raises:
            EngineDeadError: this step or an earlier one failed; `__cause__` says why.
        """
        ...

    def finish_all(self, reason: FinishReason) -> Mapping[int, EngineCoreOutputs]:
        """End all requests; the terminal outputs by client."""
        ...

    def call_utility(self, name: str, *args: Any) -> Any:
        """A control call, by name."""
        ...

    def shutdown(self) -> None:
        """Release everything. May be called more than once."""
        ...


class EngineCoreClient(Protocol):
    """The synchronous client half, used by `LLMEngine`."""

    @property
    def info(self) -> EngineInfo:
        """What is in force in the engine core."""
        ...

    def add_request(self, request: EngineCoreRequest) -> None:
        """Send a request. What the engine core refuses comes back as InvalidRequestError here, or as a terminal
        output with reason ERROR, never not at all.
        """
        ...

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        """End requests; they give no more output."""
        ...

    def get_output(self) -> EngineCoreOutputs:
        """The next outputs, waiting for a step if requests are unfinished. Empty if the step gave none (a piece of a
        prompt), or if there is nothing to wait for.

        Raises:
            EngineDeadError: the engine core has failed; `__cause__` says why.
        """
        ...

    def call_utility(self, name: str, *args: Any) -> Any:
        """A control call; returns its value or raises its error."""
        ...

    def shutdown(self) -> None:
        """Close. May be called more than once."""
        ...


class Transport(Protocol):
    """Makes client halves. The asyncio half and the server half of a process boundary are declared by capability."""

    def connect(self) -> EngineCoreClient:
        """Start the engine core where this transport runs it, and return its synchronous client.

        Raises:
            EngineCoreError: the engine core did not start; says why.
        """
        ...
