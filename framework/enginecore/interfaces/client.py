"""Clients: how a front end talks to an engine core, synchronously or from an asyncio event loop."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from enginecore.messages import EngineCoreOutputs, EngineCoreRequest, EngineInfo


class EngineCoreClient(ABC):
    """The synchronous client half, used by `LLMEngine`. Not thread-safe."""

    @property
    @abstractmethod
    def info(self) -> EngineInfo:
        """Facts and limits of the engine core."""

    @property
    @abstractmethod
    def client_index(self) -> int:
        """Which of the engine core's front ends this is; part of the ids of its requests, so that
        no two are alike.
        """

    @abstractmethod
    def add_request(self, request: EngineCoreRequest) -> None:
        """Send a request, whose id was never used before. What the engine core refuses comes back
        as InvalidRequestError here, or as a terminal output with reason ERROR.
        """

    @abstractmethod
    def abort_requests(self, request_ids: Iterable[str]) -> None:
        """End requests. The engine core gives nothing more for them; what is on its way may still
        come.
        """

    @abstractmethod
    def get_output(self) -> EngineCoreOutputs:
        """The next outputs, waiting for them if requests are unfinished. Empty if a step gave none
        (a chunk of a prompt), or if there is nothing to wait for: then `idle` is set.

        Raises:
            EngineDeadError: the engine core has failed; `__cause__` says why.
        """

    def take_output(self) -> EngineCoreOutputs | None:
        """The next outputs, without waiting for another thread or process. None: there are none
        now.

        As `get_output` by default, which is right for a client that computes them when it is asked.
        """
        return self.get_output()

    @property
    def filenos(self) -> Sequence[int]:
        """File descriptors for select or epoll: one of them is readable when `take_output` may have
        something again after it returned None. None by default, for a client whose `take_output`
        never returns None.
        """
        return ()

    @abstractmethod
    def call_utility(self, name: str, *args: Any) -> Any:
        """A control call; returns its value.

        Raises:
            InvalidRequestError: no such utility, or its arguments are wrong.
            UtilityError: it failed; says how.
            EngineDeadError: the engine core has failed.
        """

    @abstractmethod
    def shutdown(self) -> None:
        """Let running requests go on for `shutdown_timeout` seconds, end the rest with reason
        ABORT, and release everything. `get_output` still gives what came of it, then raises
        EngineDeadError. May be called more than once.
        """


class AsyncEngineCoreClient(ABC):
    """The asyncio client half, used by `AsyncLLM`. Used from one running event loop at a time;
    another may follow.
    """

    @property
    @abstractmethod
    def info(self) -> EngineInfo:
        """Facts and limits of the engine core."""

    @property
    @abstractmethod
    def client_index(self) -> int:
        """As in `EngineCoreClient`."""

    @property
    @abstractmethod
    def address(self) -> Mapping[str, Any]:
        """Where more front ends find the engine core, as plain JSON-able data. Secret: it grants
        access.
        """

    @property
    @abstractmethod
    def failure(self) -> BaseException | None:
        """Why the engine core cannot be used any more; None while it can."""

    @abstractmethod
    def add_request(self, request: EngineCoreRequest) -> None:
        """As in `EngineCoreClient`. Never waits: a caller cannot be cancelled half-way."""

    @abstractmethod
    def abort_requests(self, request_ids: Iterable[str]) -> None:
        """As in `EngineCoreClient`. Never waits."""

    @abstractmethod
    async def get_output(self) -> EngineCoreOutputs:
        """The next outputs. One task at a time; may be cancelled at any time, and nothing is lost.

        Raises:
            EngineDeadError: the engine core has failed; `__cause__` says why.
        """

    @abstractmethod
    async def call_utility(self, name: str, *args: Any) -> Any:
        """As in `EngineCoreClient`. Needs a task that waits in `get_output`."""

    @abstractmethod
    async def drain(self) -> None:
        """Begin the shutdown as `shutdown` does, and wait for its end without stopping the event
        loop. A call of `shutdown` meanwhile ends all at once.
        """

    @abstractmethod
    def shutdown(self) -> None:
        """As in `EngineCoreClient`. Waits for the end, bounded by `shutdown_timeout` and a few
        seconds.
        """
