"""What all mutants start from: a transport that hands every call on to the one of the example."""

from typing import Any

from enginecore import interfaces
from tests.conformance.transports.example import UNIX


class End:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def fileno(self):
        return self.inner.fileno()

    def receive(self):
        return self.inner.receive()


class Server(End, interfaces.ServerChannel):
    @property
    def address(self):
        return self.inner.address

    def send(self, peer, frames):
        self.inner.send(peer, frames)

    def close(self, linger):
        self.inner.close(linger)


class Channel(End, interfaces.Channel):
    def send(self, frames):
        self.inner.send(frames)

    def close(self):
        self.inner.close()


class Transport(interfaces.Transport):
    """A mutant is one that differs somewhere.

    `caught_by` names the check that sees it; `limits` are the kit's patience and time limit for it. Many a bug shows in
    something that never comes, or in a call that never returns, so they are short where no process has to start.
    """

    server: Any = Server
    channel: Any = Channel
    caught_by = ""
    limits = 0.3, 1.0

    def __init__(self, settings, context):
        self.inner = UNIX.UnixSocketTransport(settings, context)

    def listen(self, directory):
        return self.server(self.inner.listen(directory))

    def open(self, address, timeout):
        return self.channel(self.inner.open(address, timeout))
