"""Bugs in `send`."""

import contextlib
import select
import time
from collections import deque
from typing import Any

from enginecore.errors import InvalidRequestError
from tests.conformance.transports.example import UNIX
from tests.conformance.transports.mutants.proxies import Channel, Server, Transport


class SendWaits(Transport):
    caught_by = "send_waits_for_no_reader"

    class server(Server):
        def send(self, peer, frames):
            self.inner.send(peer, frames)
            while (line := self.inner._peers.get(peer)) and line._unsent:
                time.sleep(0.001)


class FrontEndWaits(Transport):
    caught_by = "a_front_end_waits_for_no_reader"

    class channel(Channel):
        def send(self, frames):
            self.inner.send(frames)
            while self.inner._unsent:
                time.sleep(0.001)


class NeedsAnotherCall(Transport):
    caught_by = "what_was_sent_leaves_by_itself"

    class channel(Channel):
        def __init__(self, inner):
            super().__init__(inner)
            self.unsent: Any = deque()

        def send(self, frames):
            self.unsent.append(frames)
            while len(self.unsent) > 1:
                self.inner.send(self.unsent.popleft())

        def receive(self):
            while self.unsent:
                self.inner.send(self.unsent.popleft())
            return self.inner.receive()


class RaisesOnGonePeer(Transport):
    caught_by = "sending_to_a_peer_that_is_gone_does_nothing"

    class server(Server):
        def send(self, peer, frames):
            self.inner._peers[peer].send(frames)


class RaisesAfterEnd(Transport):
    caught_by = "sending_after_the_end_of_the_engine_core_does_nothing"

    class channel(Channel):
        def send(self, frames):
            self.inner._socket.send(b"")
            if self.inner._socket.fileno() >= 0 and select.select([self.inner], [], [], 0)[0]:
                raise BrokenPipeError("nobody there")
            super().send(frames)


class HasNoLimit(Transport):
    caught_by = "what_is_too_large_is_refused"

    def __init__(self, settings, context):
        super().__init__(UNIX.UnixSocketSettings(max_message_bytes=1 << 62), context)


class DropsTooLarge(Transport):
    caught_by = "what_is_too_large_is_refused"

    class channel(Channel):
        def send(self, frames):
            with contextlib.suppress(InvalidRequestError):
                self.inner.send(frames)


class KeepsTheLimitSecret(Transport):
    caught_by = "what_is_too_large_is_refused"

    class server(Server):
        def send(self, peer, frames):
            try:
                self.inner.send(peer, frames)
            except InvalidRequestError:
                raise InvalidRequestError("the message is too large") from None


class BreaksAfterTooLarge(Transport):
    caught_by = "what_is_too_large_is_refused"

    class channel(Channel):
        def send(self, frames):
            try:
                self.inner.send(frames)
            except InvalidRequestError:
                self.inner.close()
                raise
