"""Channels within one process: what front ends send is put into a queue, what they get is collected."""

import os
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from enginecore.wire import ClientMessage, Frame, ServerMessage, decode_server_message, encode


class MemoryServer:
    """Fills `ServerChannel`. `sent` holds the messages for each peer, decoded, as queues to wait on.

    `on_receive` and `on_send` are called first in the methods of these names, and may raise or wait.
    """

    def __init__(self) -> None:
        self.address: dict[str, Any] = {}
        self.sent: defaultdict[bytes, SimpleQueue[ServerMessage]] = defaultdict(SimpleQueue)
        self.on_receive: Callable[[], None] = lambda: None
        self.on_send: Callable[[bytes, Sequence[Frame]], None] = lambda peer, frames: None
        self._arrived: deque[tuple[bytes, Sequence[Frame] | None]] = deque()
        self._changed = threading.Condition()
        self._all_taken = True
        self._signal = os.eventfd(0, os.EFD_NONBLOCK)

    def fileno(self) -> int:
        return self._signal

    def deliver(self, peer: bytes, *messages: ClientMessage | bytes | None) -> None:
        """As if `peer` had sent them. Bytes are sent as they are; None: it is gone."""
        with self._changed:
            for message in messages:
                match message:
                    case None:
                        self._arrived.append((peer, None))
                    case bytes():
                        self._arrived.append((peer, [message]))
                    case _:
                        self._arrived.append((peer, encode(message)))
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
        self.sent[peer].put(decode_server_message(frames))

    def close(self, linger: float = 0.0) -> None:
        os.close(self._signal)
