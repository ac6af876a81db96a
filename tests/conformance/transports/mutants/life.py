"""Bugs in how ends are made and closed, and in what they share."""

import contextlib
import os
import select
import socket
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

from tests.conformance.transports.example import UNIX
from tests.conformance.transports.mutants.proxies import Channel, End, Server, Transport


class LacksMembers(Transport):
    caught_by = "both_ends_have_all_members"

    class channel(End):
        def send(self, frames):
            self.inner.send(frames)


class AddressIsNoData(Transport):
    caught_by = "the_address_is_plain_data"

    class server(Server):
        @property
        def address(self):
            return {"path": Path(self.inner.address["path"])}


class AddressHasTuples(Transport):
    caught_by = "the_address_is_plain_data"

    class server(Server):
        @property
        def address(self):
            return {**self.inner.address, "host": ("localhost", 0)}


class OpensOnlyItsOwn(Transport):
    """Keeps in the transport what belongs into the address."""

    caught_by = "the_address_is_plain_data"
    key = b""

    def listen(self, directory):
        self.key = os.urandom(8)
        return super().listen(directory)

    def open(self, address, timeout):
        if not self.key:
            raise ConnectionError("no key")
        return super().open(address, timeout)


class MixesUpOpenings(Transport):
    caught_by = "many_can_come_at_once"
    opening = None

    def open(self, address, timeout):
        self.opening = super().open(address, timeout)
        time.sleep(0.02)
        return self.opening


class OpenIgnoresTimeout(Transport):
    caught_by = "a_closed_end_does_not_answer"

    def open(self, address, timeout):
        deadline = time.monotonic() + 3
        while True:
            try:
                return super().open(address, timeout)
            except ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)


class OpensToNobody(Transport):
    caught_by = "a_closed_end_does_not_answer"

    def open(self, address, timeout):
        try:
            return super().open(address, timeout)
        except ConnectionError:
            return Channel(UNIX.Line(socket.socketpair()[0], 1000))


class CloseHangs(Transport):
    caught_by = "close_is_bounded"

    class server(Server):
        def close(self, linger):
            self.inner.close(2.0)


class ChannelCloseHangs(Transport):
    caught_by = "close_is_bounded"

    class channel(Channel):
        def close(self):
            self.inner.close(time.monotonic() + 2.0)


class IgnoresLinger(Transport):
    caught_by = "linger_delivers_the_last_words"

    class server(Server):
        def close(self, linger):
            self.inner.close(0.0)


class LingersToTheEnd(Transport):
    caught_by = "linger_delivers_the_last_words"

    class server(Server):
        def close(self, linger):
            self.inner.close(linger)
            time.sleep(linger)


class ClosesOnce(Transport):
    caught_by = "closing_twice_does_nothing"

    class channel(Channel):
        closed = False

        def close(self):
            if self.closed:
                raise ValueError("closed already")
            self.closed = True
            self.inner.close()


class LeaksDescriptor(Transport):
    caught_by = "nothing_is_left_after_close"

    class server(Server):
        def close(self, linger):
            with contextlib.suppress(ValueError):
                os.dup(self.inner.fileno())
            self.inner.close(linger)


class LeaksThread(Transport):
    caught_by = "nothing_is_left_after_close"

    class channel(Channel):
        def __init__(self, inner):
            super().__init__(inner)
            threading.Timer(3.0, lambda: None).start()


class LeaksFile(Transport):
    caught_by = "nothing_is_left_after_close"

    class server(Server):
        def close(self, linger):
            self.inner.close(linger)
            path = Path(self.address["path"])
            if path.parent.exists():
                path.touch()


class KeepsThoseWhoLeft(Transport):
    caught_by = "those_who_left_leave_nothing"

    class server(Server):
        def __init__(self, inner):
            super().__init__(inner)
            self.kept = {}

        def receive(self):
            received = self.inner.receive()
            for line in self.inner._peers.values():
                if line not in self.kept:
                    self.kept[line] = os.dup(line.fileno())
            return received

        def close(self, linger):
            self.inner.close(linger)
            for fd in self.kept.values():
                os.close(fd)
            self.kept.clear()


class BoundToItsThread(Transport):
    caught_by = "ends_may_change_threads"

    class server(Server):
        def __init__(self, inner):
            super().__init__(inner)
            self.thread = 0

        def receive(self):
            self.thread = threading.get_ident()
            return self.inner.receive()

        def send(self, peer, frames):
            if self.thread != threading.get_ident():
                raise RuntimeError("wrong thread")
            self.inner.send(peer, frames)


class SharesState(Transport):
    caught_by = "two_servers_stand_side_by_side"

    class server(Server):
        owners: ClassVar[dict[bytes, Any]] = {}

        def receive(self):
            received = self.inner.receive()
            if received:
                self.owners[received[0]] = self.inner
            return received

        def send(self, peer, frames):
            if peer in self.owners:
                self.owners[peer].send(peer, frames)


class DiesOfGarbage(Transport):
    caught_by = "strangers_disturb_no_front_end"

    class server(Server):
        def __init__(self, inner):
            super().__init__(inner)
            forget = inner._forget

            def die(fd):
                if not forget(fd):
                    raise ValueError("what was that?")
                return True

            inner._forget = die


class WaitsForStrangers(Transport):
    """One who says nothing, and everybody waits for him."""

    caught_by = "strangers_disturb_no_front_end"

    class server(Server):
        def __init__(self, inner):
            super().__init__(inner)
            accept = inner._accept

            def wait():
                accept()
                *_, (_, line) = inner._lines.values()
                select.select([line], [], [])

            inner._accept = wait
