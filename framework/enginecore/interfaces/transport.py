"""Transport: how messages get from a front end to an engine core and back.

`transport.use` chooses the transport, the front-end class which client half it needs: `LLMEngine`
the synchronous one, `AsyncLLM` the asyncio one.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from enginecore.errors import PluginError
from enginecore.interfaces.client import EngineCoreClient
from enginecore.wire import Frame


class ServerChannel(ABC):
    """The engine core's end: exchanges messages with any number of front ends, each of which is a
    peer.

    Frames that arrive are untrusted until the kernel has decoded them: none may be unpickled or
    evaluated, and nothing that a peer sends, nor its sudden end, may disturb another peer.
    """

    @property
    @abstractmethod
    def address(self) -> Mapping[str, Any]:
        """Address for `Transport.open`, as plain JSON-able data. Fixed once listening."""

    @abstractmethod
    def fileno(self) -> int:
        """A file descriptor for select or epoll: readable at the latest when `receive` has
        something again after it returned None.
        """

    @abstractmethod
    def receive(self) -> tuple[bytes, Sequence[Frame] | None] | None:
        """The next message and the peer that sent it; None for frames: that peer is gone. None:
        nothing now.

        Never waits. Messages of one peer come whole, in order and once. Called on one thread.
        """

    @abstractmethod
    def send(self, peer: bytes, frames: Sequence[Frame]) -> None:
        """Send a message to a peer; to one that is gone, nothing happens. Returns without waiting
        for the peer to read. Large frames need not be copied: they stay alive and unchanged for as
        long as they are referenced.

        Called on one thread, maybe another one than `receive`.

        Raises:
            InvalidRequestError: the message is larger than this transport carries; says the limit.
        """

    @abstractmethod
    def close(self, linger: float) -> None:
        """Give what was sent up to `linger` seconds to leave, then release everything. No other
        method is running when it is called. May be called more than once.
        """


class Channel(ABC):
    """A front end's end. Used by one thread at a time."""

    @abstractmethod
    def fileno(self) -> int:
        """As in `ServerChannel`."""

    @abstractmethod
    def receive(self) -> Sequence[Frame] | None:
        """The next message, whole, in order and once; None: nothing now. Never waits.

        Raises:
            ConnectionError: all that was sent has been received, and the engine core's end is gone.
        """

    @abstractmethod
    def send(self, frames: Sequence[Frame]) -> None:
        """Send a message. Returns without waiting for the engine core to read; after its end
        nothing happens.

        Raises:
            InvalidRequestError: the message is larger than this transport carries; says the limit.
        """

    @abstractmethod
    def close(self) -> None:
        """Release everything, soon; what was sent before may or may not arrive. May be called more
        than once.
        """


class Transport(ABC):  # noqa: B024
    """Joins front ends to an engine core in one of two ways.

    The component declares which, as a capability:

    - "channels": it carries messages between processes, by `listen` and `open`. The kernel does the
      rest: it starts the engine core's process, defines the messages, and makes both client halves,
      synchronous and asyncio.
    - "sync": it runs the engine core in the front end's thread and makes the synchronous client, by
      `connect`.

    So the capability says which members are required; those of the other are never called. A
    transport is made anew in each process that needs it.
    """

    def listen(self, directory: Path) -> ServerChannel:
        """The engine core's end, ready for peers. Required for "channels".

        Args:
            directory: Empty, accessible to this user alone, with a path short enough for a socket;
                for the files that this end needs. Removed by the kernel afterwards.

        Raises:
            ConfigurationError: it cannot listen as the settings say; says why and what would work.
        """
        raise _lacking(self, "channels", "listen")

    def open(self, address: Mapping[str, Any], timeout: float) -> Channel:
        """A front end's end of the line to `address`, ready to send and receive. Required for
        "channels".

        The other end may have to be in `receive` meanwhile, to accept it.

        Args:
            address: As `ServerChannel.address` gave it, maybe in another process.
            timeout: Seconds to wait for an answer.

        Raises:
            ConfigurationError: this is no address of this transport.
            ConnectionError: there was no answer within `timeout`.
        """
        raise _lacking(self, "channels", "open")

    def connect(self) -> EngineCoreClient:
        """Start the engine core in this process, by the context's `start_engine_core`, and return
        its client. Required for "sync".

        Raises:
            EngineCoreError: the engine core did not start; says why.
        """
        raise _lacking(self, "sync", "connect")


def _lacking(transport: Transport, capability: str, method: str) -> PluginError:
    return PluginError(
        f'{type(transport).__name__} has no {method}(), which a transport that declares "{capability}" must override'
    )
