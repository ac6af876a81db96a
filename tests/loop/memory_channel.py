"""Channels within one process: what front ends send is put into a queue, what they get is collected."""

import os
from collections import defaultdict, deque
from queue import SimpleQueue

from enginecore.wire import decode_server_message, encode


class MemoryServer:
    """Fills `ServerChannel`. `sent` holds the messages for each peer, decoded, as queues to wait on.

    `on_receive` and `on_send` are called first in the methods of these names, and may raise.
    """

    def __init__(self):
        self.address = {}
        self.sent = defaultdict(SimpleQueue)
        self.on_receive = lambda: None
        self.on_send = lambda: None
        self._arrived = deque()
        self._signal = os.eventfd(0, os.EFD_NONBLOCK)

    def fileno(self):
        return self._signal

    def deliver(self, peer, *messages):
        """As if `peer` had sent them. Bytes are sent as they are; None: it is gone."""
        for message in messages:
            frames = message if message is None else [message] if isinstance(message, bytes) else encode(message)
            self._arrived.append((peer, frames))
        os.eventfd_write(self._signal, 1)

    def receive(self):
        self.on_receive()
        if self._arrived:
            return self._arrived.popleft()
        try:
            os.eventfd_read(self._signal)
        except BlockingIOError:
            return None
        return self._arrived.popleft() if self._arrived else None

    def send(self, peer, frames):
        self.on_send()
        self.sent[peer].put(decode_server_message(frames))

    def close(self, linger=0.0):
        os.close(self._signal)
