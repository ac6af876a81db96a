"""Bugs in how an end that goes is seen at the other one."""

import contextlib
import os
import select
from collections import deque
from typing import Any

from tests.conformance.transports.mutants.proxies import Channel, Server, Transport


class HidesDepartures(Transport):
    caught_by = "a_front_end_that_closes_is_gone_once"

    class server(Server):
        def receive(self):
            received = self.inner.receive()
            return None if received and received[1] is None else received


class ReportsDeparturesTwice(Transport):
    caught_by = "a_front_end_that_closes_is_gone_once"

    class server(Server):
        again = None

        def receive(self):
            if self.again:
                received, self.again = self.again, None
                return received
            received = self.inner.receive()
            self.again = received if received and received[1] is None else None
            return received


class ReportsDeparturesEarly(Transport):
    caught_by = "a_front_end_that_closes_is_gone_once"

    class server(Server):
        def __init__(self, inner):
            super().__init__(inner)
            self.held: Any = deque()

        def receive(self):
            while (received := self.inner.receive()) is not None:
                if received[1] is None:
                    self.held.appendleft(received)
                else:
                    self.held.append(received)
            return self.held.popleft() if self.held else None


def deliver_halves(line):
    """Have a line take what has arrived at its end for a message."""
    receive = line.receive

    def receive_halves():
        try:
            return receive()
        except ConnectionResetError:
            if not line._arrived:
                raise
            frames = [bytes(line._arrived)]
            line._arrived.clear()
            return frames

    line.receive = receive_halves


class DeliversHalves(Transport):
    caught_by = "a_front_end_that_is_killed_is_gone_once"
    limits = 5.0, 60.0

    class server(Server):
        def __init__(self, inner):
            super().__init__(inner)
            accept = inner._accept

            def accept_halves():
                accept()
                *_, (_, line) = inner._lines.values()
                deliver_halves(line)

            inner._accept = accept_halves


class DeliversHalvesToFrontEnds(Transport):
    caught_by = "an_engine_core_that_is_killed_is_seen"
    limits = 5.0, 60.0

    class channel(Channel):
        def __init__(self, inner):
            super().__init__(inner)
            deliver_halves(inner)


class NeverEnds(Transport):
    caught_by = "the_end_of_the_engine_core_is_seen"

    class channel(Channel):
        def receive(self):
            with contextlib.suppress(ConnectionError):
                return self.inner.receive()


class EndsOnce(Transport):
    caught_by = "the_end_of_the_engine_core_is_seen"

    class channel(Channel):
        ended = False

        def receive(self):
            if self.ended:
                return None
            try:
                return self.inner.receive()
            except ConnectionError:
                self.ended = True
                raise


class EndsEarly(Transport):
    caught_by = "the_end_of_the_engine_core_is_seen"

    class channel(Channel):
        def receive(self):
            poll = select.poll()
            poll.register(self.inner, select.POLLHUP)
            if poll.poll(0):
                raise ConnectionResetError("it is gone")
            return self.inner.receive()


class EndsInSilence(Transport):
    caught_by = "the_end_is_seen_by_those_who_wait_for_it"

    class server(Server):
        """Its waiters are woken by messages only."""

        def __init__(self, inner):
            super().__init__(inner)
            self.silent = os.eventfd(0)

        def fileno(self):
            is_over = any(map(self.is_over, (line for _, line in self.inner._lines.values())))
            return self.silent if is_over else self.inner.fileno()

        def is_over(self, line):
            poll = select.poll()
            poll.register(line, select.POLLHUP)
            return bool(poll.poll(0))

        def close(self, linger):
            super().close(linger)
            if self.silent >= 0:
                os.close(self.silent)
                self.silent = -1


class NeverEndsForThoseWhoAttached(Transport):
    """Who started the engine core sees its process end; others have only the transport."""

    caught_by = "an_engine_core_that_is_killed_is_mourned"
    limits = 2.0, 60.0
    channel = NeverEnds.channel
