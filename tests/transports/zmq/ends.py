"""Both ends of the line, for tests that wait for nothing longer than they must."""

import contextlib
import select
import threading
import time
from typing import Any

from enginecore_zmq.settings import ZmqSettings
from enginecore_zmq.transport import ZmqTransport

PATIENCE = 60.0
"""Seconds; what is expected takes milliseconds on an idle machine."""


def transport(address="ipc", **settings):
    return ZmqTransport(ZmqSettings(address=address, **settings))


def wait(end, seconds=PATIENCE):
    """Whether an end becomes readable."""
    poll = select.poll()
    poll.register(end.fileno(), select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def take(end: Any) -> Any:
    """The next that an end has, which must come."""
    deadline = time.monotonic() + PATIENCE
    while (item := end.receive()) is None:
        assert wait(end, deadline - time.monotonic()), "nothing came"
    return item


def plain(frames):
    """Frames as bytes."""
    return None if frames is None else [bytes(frame) for frame in frames]


def take_plain(end: Any) -> Any:
    """As `take`, with frames as bytes."""
    item = take(end)
    return (item[0], plain(item[1])) if isinstance(item, tuple) else plain(item)


class Server:
    """An engine core's end that also takes part while front ends are let in."""

    def __init__(self, channel):
        self.channel = channel

    @property
    def scheme(self):
        """That of settings with which it can be reached."""
        return "ipc" if self.channel.address["endpoint"].startswith("ipc:") else "tcp://127.0.0.1"

    def pump_until(self, done):
        """Take part until something is done that gives a message or so; nobody else may say anything meanwhile."""
        deadline = time.monotonic() + PATIENCE
        while not (result := done()):
            assert time.monotonic() < deadline, "nothing came"
            wait(self.channel, 0.01)
            assert self.channel.receive() is None
        return result

    def hear(self, other):
        """What an `OtherEnd` says, which may need this end for it."""
        self.pump_until(other.has_spoken)
        return other.hear()

    def open(self, transport, address=None, timeout=PATIENCE):
        """A front end's end."""
        result = []

        def run():
            try:
                result.append(transport.open(address or self.channel.address, timeout))
            except Exception as error:
                result.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        self.pump_until(lambda: not thread.is_alive())
        if isinstance(result[0], Exception):
            raise result[0]
        return result[0]

    def join(self, transport):
        """A front end's end that has said hello, and the name of its peer."""
        channel = self.open(transport)
        channel.send([b"hello"])
        peer, frames = take_plain(self.channel)
        assert frames == [b"hello"]
        return channel, peer


@contextlib.contextmanager
def serving(transport, directory):
    """A server."""
    channel = transport.listen(directory)
    try:
        yield Server(channel)
    finally:
        channel.close(0)
