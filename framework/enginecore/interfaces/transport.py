"""Transport: how front end and engine core talk. The front-end class picks the half, `transport.use` the transport.

A transport has one of two shapes, which its component declares:

- "sync": it runs the engine core itself and makes a client for it (`Transport`); `inproc` does that by calls.
- "channels": it carries messages between processes (`ChannelTransport`). The kernel does the rest: it starts the engine
  core's process, says what is sent, and makes both client halves, synchronous and asyncio.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from enginecore.messages import EngineCoreOutputs, EngineCoreRequest, EngineInfo, FinishReason
from enginecore.wire import Frame


class EngineCoreApi(Protocol):
    """What whoever runs an engine core sees of it. Implemented by the kernel, on one thread."""

    @property
    def info(self) -> EngineInfo:
        """What is in force."""
        ...

    @property
    def is_paused(self) -> bool:
        """Whether nothing is scheduled until `resume` is called."""
        ...

    def add_request(self, request: EngineCoreRequest) -> None:
        """Accept a request, or raise InvalidRequestError."""
        ...

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        """End requests without a word. From any thread: takes effect before the outputs of a step that is running are
        processed.
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


class EngineCoreClient(Protocol):
    """The synchronous client half, used by `LLMEngine`. Not thread-safe."""

    @property
    def info(self) -> EngineInfo:
        """What is in force in the engine core."""
        ...

    @property
    def client_index(self) -> int:
        """Which of the engine core's front ends this is; part of the ids of its requests, so that no two are alike."""
        ...

    def add_request(self, request: EngineCoreRequest) -> None:
        """Send a request, whose id was never used before. What the engine core refuses comes back as
        InvalidRequestError here, or as a terminal output with reason ERROR, never not at all.
        """
        ...

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        """End requests. The engine core gives nothing more for them; what is on its way may still come."""
        ...

    def get_output(self) -> EngineCoreOutputs:
        """The next outputs, waiting for them if requests are unfinished. Empty if a step gave none (a piece of a
        prompt), or if there is nothing to wait for: then `idle` is set.

        Raises:
            EngineDeadError: the engine core has failed; `__cause__` says why.
        """
        ...

    def call_utility(self, name: str, *args: Any) -> Any:
        """A control call; returns its value.

        Raises:
            InvalidRequestError: no such utility, or its arguments are wrong.
            UtilityError: it failed; says how.
            EngineDeadError: the engine core has failed.
        """
        ...

    def shutdown(self) -> None:
        """Let running requests go on for `shutdown_timeout` seconds, end the rest with reason ABORT, and release
        everything. `get_output` still gives what came of it, then raises EngineDeadError. May be called more than once.
        """
        ...


class AsyncEngineCoreClient(Protocol):
    """The asyncio client half, used by `AsyncLLM`. Used from one running event loop at a time; another may follow."""

    @property
    def info(self) -> EngineInfo:
        """What is in force in the engine core."""
        ...

    @property
    def client_index(self) -> int:
        """As in `EngineCoreClient`."""
        ...

    @property
    def address(self) -> Mapping[str, Any]:
        """Where more front ends find the engine core, as plain JSON-able data. Secret: whoever has it gets in."""
        ...

    @property
    def failure(self) -> BaseException | None:
        """Why the engine core cannot be used any more; None while it can."""
        ...

    def add_request(self, request: EngineCoreRequest) -> None:
        """As in `EngineCoreClient`. Never waits: a caller cannot be cancelled half-way."""
        ...

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        """As in `EngineCoreClient`. Never waits."""
        ...

    async def get_output(self) -> EngineCoreOutputs:
        """The next outputs. One task at a time; may be cancelled at any time, and nothing is lost.

        Raises:
            EngineDeadError: the engine core has failed; `__cause__` says why.
        """
        ...

    async def call_utility(self, name: str, *args: Any) -> Any:
        """As in `EngineCoreClient`. Needs a task that waits in `get_output`."""
        ...

    async def drain(self) -> None:
        """Begin the shutdown as `shutdown` does, and wait for its end without stopping the event loop. Whoever does not
        want to wait any more calls `shutdown`, which then ends all at once.
        """
        ...

    def shutdown(self) -> None:
        """As in `EngineCoreClient`. Waits for the end, bounded by `shutdown_timeout` and a few seconds."""
        ...


class Transport(Protocol):
    """Runs the engine core itself: capability "sync"."""

    def connect(self) -> EngineCoreClient:
        """Start the engine core where this transport runs it, and return its synchronous client.

        Raises:
            EngineCoreError: the engine core did not start; says why.
        """
        ...


# -- messages between processes ----------------------------------------------------------------------


class ServerChannel(Protocol):
    """The engine core's end: takes messages of any number of front ends, each of which is a peer.

    Whatever arrives is a stranger's until the kernel has understood it: no frame may be unpickled or evaluated, and
    nothing that a peer sends, or its sudden end, may disturb another one.
    """

    @property
    def address(self) -> Mapping[str, Any]:
        """What `ChannelTransport.open` needs, as plain JSON-able data. Fixed once listening."""
        ...

    def fileno(self) -> int:
        """A file descriptor to wait on, by select or epoll: readable at the latest when `receive` has something again
        after it returned None.
        """
        ...

    def receive(self) -> tuple[bytes, Sequence[Frame] | None] | None:
        """The next message and the peer that sent it; None for frames: that peer is gone. None: nothing now.

        Never waits. Messages of one peer come whole, in order and once. Called on one thread.
        """
        ...

    def send(self, peer: bytes, frames: Sequence[Frame]) -> None:
        """Send a message to a peer; to one that is gone, nothing happens. Returns without waiting for the peer to read.
        Large frames need not be copied: they stay alive and unchanged for as long as they are referenced.

        Called on one thread, maybe another one than `receive`.

        Raises:
            InvalidRequestError: the message is larger than this transport carries; says the limit.
        """
        ...

    def close(self, linger: float) -> None:
        """Give what was sent up to `linger` seconds to leave, then let go of everything. When it is called no thread
        is in another method. May be called more than once.
        """
        ...


class Channel(Protocol):
    """A front end's end. Used by one thread at a time."""

    def fileno(self) -> int:
        """As in `ServerChannel`."""
        ...

    def receive(self) -> Sequence[Frame] | None:
        """The next message, whole, in order and once; None: nothing now. Never waits.

        Raises:
            ConnectionError: all that was sent has been received, and the engine core's end is gone.
        """
        ...

    def send(self, frames: Sequence[Frame]) -> None:
        """Send a message. Returns without waiting for the engine core to read; after its end nothing happens.

        Raises:
            InvalidRequestError: the message is larger than this transport carries; says the limit.
        """
        ...

    def close(self) -> None:
        """Let go of everything, soon; what was sent before may or may not arrive. May be called more than once."""
        ...


class ChannelTransport(Protocol):
    """Carries messages between processes: capability "channels". Made anew in each process that needs it."""

    def listen(self, directory: Path) -> ServerChannel:
        """The engine core's end, ready for peers.

        Args:
            directory: Empty, and nobody else may enter it; its path is short enough for a socket. For whatever files
                this end needs. Removed by the kernel afterwards.

        Raises:
            ConfigurationError: it cannot listen as the settings say; says why and what would do.
        """
        ...

    def open(self, address: Mapping[str, Any], timeout: float) -> Channel:
        """A front end's end of the line to `address`, ready to send and receive. The other end may need to be in
        `receive` meanwhile, to let it in.

        Raises:
            ConfigurationError: this is no address of this transport.
            ConnectionError: nobody answers there within `timeout` seconds.
        """
        ...
