"""Engine core: its interface to its runner, which is a busy loop or an in-process client."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from enginecore.messages import EngineCoreOutputs, EngineCoreRequest, EngineInfo, FinishReason


class EngineCoreApi(Protocol):
    """An engine core, as its runner sees it. Implemented by the kernel, on one thread."""

    @property
    def info(self) -> EngineInfo:
        """Facts and limits of the engine core."""
        ...

    @property
    def is_paused(self) -> bool:
        """Whether nothing is scheduled until `resume` is called."""
        ...

    def add_request(self, request: EngineCoreRequest) -> None:
        """Accept a request, or raise InvalidRequestError."""
        ...

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        """End requests without outputs. From any thread: takes effect before the outputs of a step
        that is running are processed.
        """
        ...

    def abort_client(self, client_index: int) -> None:
        """End all requests of a front end that is gone."""
        ...

    def has_requests(self) -> bool:
        """Whether `advance` has anything to do."""
        ...

    def has_unfinished_requests(self) -> bool:
        """Whether a request has not ended; true of a paused engine that has nothing to do, too."""
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
        """A control call, by name; see `Utilities`.

        Raises:
            InvalidRequestError: no such utility, or its arguments are wrong.
            UtilityError: it failed; says how.
        """
        ...

    def register_failure_callback(self, callback: Callable[[BaseException], None]) -> None:
        """Call `callback` once, from any thread, when the engine core has failed."""
        ...

    def shutdown(self) -> None:
        """Release everything. May be called more than once."""
        ...
