"""A transport for enginecore over a plain Unix socket: frames with their lengths in front, and nothing else.

A message is written as

    body   8 bytes   how many bytes follow these first twelve
    count  4 bytes   how many frames
    8 bytes for each frame: its length; then the frames themselves

Either end of a connection is a `FrozenLine`. That is all that a front end needs; the engine core's end, `FrozenServer`,
has one for each front end and an epoll over all of them.
"""

import itertools
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import Field

from enginecore.errors import ConfigurationError, InvalidRequestError
from enginecore.interfaces import Channel, Frame, ServerChannel, Transport
from enginecore.plugin import Component, ComponentSettings, TransportContext, hookimpl

HEADER = struct.Struct("!QI")
CHUNK = 1 << 18
"""Bytes to read at once."""
MAX_PIECES = 512
"""Pieces to send at once; Linux takes 1,024."""
BACKLOG = 128
"""Front ends that may wait to be let in."""


class FrozenTransportSettings(ComponentSettings):
    """Settings of the `frozen-transport` transport.

    Attributes:
        max_message_bytes: Longest message that either end sends or takes, lengths included. A front end that announces
            a longer one is disconnected.
    """

    max_message_bytes: int = Field(default=256 << 20, ge=1 << 10, strict=True)


class FrozenLine(Channel):
    """One connected socket that carries whole messages both ways and never waits for the other end.

    One thread may be in `receive` while another is in `send`.
    """

    def __init__(self, connected: socket.socket, limit: int) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._limit = limit
        self._arrived = bytearray()
        self._unsent: deque[memoryview] = deque()  # refers to what was given to `send`; nothing is copied
        self._flusher: threading.Thread | None = None
        self._closed = False
        self._lock = threading.Lock()  # of the three above

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> list[bytes] | None:
        """The next message; None if it has not all arrived.

        Raises:
            ConnectionError: the other end is gone, or what it sends is no message.
        """
        message = self._take()
        if message is None:
            try:
                data = self._socket.recv(CHUNK)
            except BlockingIOError:
                return None
            if not data:
                raise ConnectionResetError("the other end closed the connection")
            self._arrived += data
            message = self._take()
        return message

    def _take(self) -> list[bytes] | None:
        if len(self._arrived) < HEADER.size:
            return None
        body, count = HEADER.unpack_from(self._arrived)
        # before anything is kept for it: a number that a stranger made up must not cost memory
        if body > self._limit or not 0 < 8 * count <= body:
            raise ConnectionAbortedError(f"a message of {count} frames and {body} bytes is announced")
        end = HEADER.size + body
        if len(self._arrived) < end:
            return None
        lengths = struct.unpack_from(f"!{count}Q", self._arrived, HEADER.size)
        if 8 * count + sum(lengths) != body:
            raise ConnectionAbortedError("the lengths of a message's frames do not add up")
        bounds = itertools.accumulate(lengths, initial=HEADER.size + 8 * count)
        with memoryview(self._arrived) as view:
            frames = [bytes(view[start:stop]) for start, stop in itertools.pairwise(bounds)]
        del self._arrived[:end]
        return frames

    def send(self, frames: Sequence[Frame]) -> None:
        """Send what goes at once; the rest is left to a thread that lives as long as there is a rest.

        Raises:
            InvalidRequestError: the message is too large.
        """
        views = [memoryview(frame) for frame in frames]
        body = 8 * len(views) + sum(view.nbytes for view in views)
        if body > self._limit:
            raise InvalidRequestError(
                f"a message of {body} bytes is too large: transport.frozen-transport.max_message_bytes = {self._limit}"
            )
        head = HEADER.pack(body, len(views)) + struct.pack(f"!{len(views)}Q", *(view.nbytes for view in views))
        with self._lock:
            if self._closed:
                return
            self._unsent += [memoryview(head), *(view.cast("B") for view in views if view.nbytes)]
            if self._flusher is None and not self._push():
                self._flusher = threading.Thread(target=self._flush, name="frozen-flush", daemon=True)
                self._flusher.start()

    def _push(self) -> bool:
        """Send what goes without waiting; whether that was all."""
        try:
            while self._unsent:
                sent = self._socket.sendmsg(list(itertools.islice(self._unsent, MAX_PIECES)))
                while self._unsent and sent >= len(self._unsent[0]):
                    sent -= len(self._unsent.popleft())
                if sent:
                    self._unsent[0] = self._unsent[0][sent:]
        except BlockingIOError:
            return False
        except OSError:  # the other end is gone, which is `receive`'s to say
            self._unsent.clear()
        return True

    def _flush(self) -> None:
        room = select.poll()
        room.register(self._socket, select.POLLOUT)
        while True:
            room.poll()  # also returns when the other end is gone, or this one is closed
            with self._lock:
                if self._push():
                    self._flusher = None
                    return

    def close(self, deadline: float = 0.0) -> None:
        """Let go of everything; until `deadline`, what is unsent may leave."""
        if (flusher := self._flusher) is not None:
            flusher.join(max(deadline - time.monotonic(), 0.0))
        with self._lock:
            self._closed = True
            self._unsent.clear()
            flusher = self._flusher
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the flusher
        if flusher is not None:
            flusher.join()
        self._socket.close()


class FrozenServer(ServerChannel):
    """The engine core's end. A peer's name is its number, and is never used again."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(str(path))
        except OSError as error:
            self._listener.close()
            raise ConfigurationError(f"no socket can be made at {path}: {error}; it needs a short path") from error
        self._listener.listen(BACKLOG)
        self._listener.setblocking(False)
        self._numbers = itertools.count()
        self._lines: dict[int, tuple[bytes, FrozenLine]] = {}  # by file descriptor: whoever is connected
        self._peers: dict[bytes, FrozenLine] = {}  # by name: whoever has said something
        self._ready: dict[int, None] = {}  # file descriptors to look at, in turn
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN)

    @property
    def address(self) -> Mapping[str, Any]:
        return {"path": str(self._path)}

    def fileno(self) -> int:
        return self._epoll.fileno()

    def receive(self) -> tuple[bytes, Sequence[Frame] | None] | None:
        self._ready.update(dict.fromkeys(fd for fd, _ in self._epoll.poll(0)))
        while self._ready:
            fd = next(iter(self._ready))
            del self._ready[fd]
            if fd == self._listener.fileno():
                self._accept()
                continue
            name, line = self._lines[fd]
            try:
                message = line.receive()
            except ConnectionError:
                if self._forget(fd):
                    return name, None
                continue
            if message is not None:
                self._ready[fd] = None  # there may be more, but first it is everybody else's turn
                self._peers[name] = line
                return name, message
        return None

    def _accept(self) -> None:
        with suppress(OSError):  # gone again, or this process is out of file descriptors
            line = FrozenLine(self._listener.accept()[0], self._limit)
            self._lines[line.fileno()] = next(self._numbers).to_bytes(8), line
            self._epoll.register(line, select.EPOLLIN)

    def _forget(self, fd: int) -> bool:
        """Drop a line; whether it was a peer's, not a stranger's who never sent a message."""
        name, line = self._lines.pop(fd)
        line.close()
        return self._peers.pop(name, None) is not None

    def send(self, peer: bytes, frames: Sequence[Frame]) -> None:
        if line := self._peers.get(peer):
            line.send(frames)

    def close(self, linger: float) -> None:
        deadline = time.monotonic() + linger
        for _, line in self._lines.values():
            line.close(deadline)
        self._lines.clear()
        self._peers.clear()
        self._epoll.close()
        self._listener.close()
        self._path.unlink(missing_ok=True)


class FrozenTransport(Transport):
    """Listens at a path, and connects to one."""

    def __init__(self, settings: FrozenTransportSettings, context: TransportContext) -> None:
        self._limit = settings.max_message_bytes

    def listen(self, directory: Path) -> ServerChannel:
        return FrozenServer(directory / "socket", self._limit)

    def open(self, address: Mapping[str, Any], timeout: float) -> Channel:
        path = address.get("path")
        if not isinstance(path, str):
            raise ConfigurationError(f"an address of transport frozen-transport has a path, and this one has {path!r}")
        connected = socket.socket(socket.AF_UNIX)
        try:
            # the limit of `connect`, which waits where too many others wait to be let in; Python's own does not, there
            seconds, rest = divmod(max(timeout, 0.001), 1)
            limit = struct.pack("ll", int(seconds), int(rest * 1e6))
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            connected.connect(path)
        except OSError as error:
            connected.close()
            raise ConnectionError(f"nobody answers at {path}: {error.strerror}") from error
        return FrozenLine(connected, self._limit)


COMPONENT = Component(
    kind="transport",
    name="frozen-transport",
    factory=FrozenTransport,
    settings=FrozenTransportSettings,
    capabilities=frozenset({"channels"}),
    summary="Length-prefixed frames over a Unix socket.",
)


@hookimpl
def enginecore_components() -> list[Component]:
    """What this package offers."""
    return [COMPONENT]
