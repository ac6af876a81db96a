"""Channels within one process: what front ends send is put into a queue, what they get is collected."""

# pyright: reportIncompatibleMethodOverride=false

import os
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any

from enginecore.interfaces import Channel, ServerChannel
from enginecore.wire import ClientMessage, Frame, ServerMessage, decode_client_message, decode_server_message, encode


class MemoryServer(ServerChannel):
    """`sent` holds the messages for each peer, decoded, as queues to wait on.

    `on_receive` and `on_send` are called first in the methods of these names, and may raise or wait.
    """

    address: Mapping[str, Any] = {}

    def __init__(self) -> None:
        self.sent: defaultdict[bytes, SimpleQueue[ServerMessage]] = defaultdict(SimpleQueue)
        self.channels: dict[bytes, MemoryChannel] = {}
        self.on_receive: Callable[[], None] = lambda: None
        self.on_send: Callable[[bytes, Sequence[Frame]], None] = lambda peer, frames: None
        self._arrived: deque[tuple[bytes, Sequence[Frame] | None]] = deque()
        self._changed = threading.Condition()
        self._all_taken = True
        self._signal = os.eventfd(0, os.EFD_NONBLOCK)

    def fileno(self) -> int:
        return self._signal

    def connect(self, peer: bytes) -> "MemoryChannel":
        """A front end's end, instead of the queue in `sent`."""
        self.channels[peer] = MemoryChannel(self, peer)
        return self.channels[peer]

    def deliver(self, peer: bytes, *messages: ClientMessage | bytes | None) -> None:
        """As if `peer` had sent them. Bytes are sent as they are; None: it is gone."""
        for message in messages:
            match message:
                case None:
                    self.arrive(peer, None)
                case bytes():
                    self.arrive(peer, [message])
                case _:
                    self.arrive(peer, encode(message))

    def arrive(self, peer: bytes, frames: Sequence[Frame] | None) -> None:
        with self._changed:
            self._arrived.append((peer, frames))
            self._all_taken = False
        os.eventfd_write(self._signal, 1)

    def wait_until_taken(self, timeout: float) -> bool:
        """Until all that was delivered was received, and what it led to in that thread is done."""
        with self._changed:
            return self._changed.wait_for(lambda: self._all_taken, timeout)

    def receive(self) -> tuple[bytes, Sequence[Frame] | None] | None:
        self.on_receive()
        with self._changed:
            if self._arrived:
                return self._arrived.popleft()
            self._all_taken = True
            self._changed.notify_all()
            try:
                os.eventfd_read(self._signal)
            except BlockingIOError:
                pass
        return None

    def send(self, peer: bytes, frames: Sequence[Frame]) -> None:
        self.on_send(peer, frames)
        if peer in self.channels:
            self.channels[peer].put(frames)
        else:
            self.sent[peer].put(decode_server_message(frames))

    def close(self, linger: float = 0.0) -> None:
        os.close(self._signal)


class MemoryChannel(Channel):
    """What is put into it is received; None: the engine core's end is gone."""

    def __init__(self, server: MemoryServer | None = None, peer: bytes = b"") -> None:
        self.sent: list[ClientMessage] = []
        self.closed = False
        self._server = server
        self._peer = peer
        self._arrived: deque[Sequence[Frame] | None] = deque()
        self._signal = os.eventfd(0, os.EFD_NONBLOCK)

    def put(self, frames: Sequence[Frame] | None) -> None:
        self._arrived.append(frames)
        os.eventfd_write(self._signal, 1)

    def say(self, *messages: ServerMessage) -> None:
        for message in messages:
            self.put(encode(message))

    def fileno(self) -> int:
        return self._signal

    def receive(self) -> Sequence[Frame] | None:
        if not self._arrived:
            try:
                os.eventfd_read(self._signal)
            except BlockingIOError:
                pass
            if not self._arrived:
                return None
        frames = self._arrived.popleft()
        if frames is None:
            self.put(None)
            raise ConnectionError("the other end is gone")
        return frames

    def send(self, frames: Sequence[Frame]) -> None:
        self.sent.append(decode_client_message(frames))
        if self._server:
            self._server.arrive(self._peer, frames)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            os.close(self._signal)
