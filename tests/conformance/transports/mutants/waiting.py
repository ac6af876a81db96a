"""Bugs in `receive` and `fileno`."""

import os
import select
import time

from tests.conformance.transports.mutants.proxies import Channel, Server, Transport


class ReceiveWaits(Transport):
    caught_by = "receive_never_waits"

    class server(Server):
        def receive(self):
            select.select([self.inner], [], [])
            return self.inner.receive()


class NeverReadable(Transport):
    caught_by = "fileno_wakes_every_kind_of_waiter"

    class channel(Channel):
        def __init__(self, inner):
            super().__init__(inner)
            self.silent = os.eventfd(0)

        def fileno(self):
            return self.silent

        def close(self):
            super().close()
            if self.silent >= 0:
                os.close(self.silent)
                self.silent = -1


class Edges(Channel):
    """Readable once for whatever arrives."""

    def __init__(self, inner):
        super().__init__(inner)
        self.edges = select.epoll()
        self.edges.register(inner, select.EPOLLIN | select.EPOLLET)

    def fileno(self):
        return self.edges.fileno()

    def close(self):
        self.edges.close()
        super().close()


class LosesWakeups(Transport):
    caught_by = "no_wakeup_is_lost"

    class channel(Edges):
        def receive(self):
            frames = self.inner.receive()
            if frames is None:
                time.sleep(0.001)
                self.edges.poll(0)
            return frames


class SendingEatsWakeups(Transport):
    caught_by = "fileno_stays_readable_until_nothing_is_left"

    class channel(Edges):
        def send(self, frames):
            self.edges.poll(0)
            super().send(frames)


class ChangesFileno(Transport):
    caught_by = "fileno_stays_the_same"

    class server(Server):
        def __init__(self, inner):
            super().__init__(inner)
            self.made = []

        def fileno(self):
            self.made.append(os.dup(self.inner.fileno()))
            return self.made[-1]

        def close(self, linger):
            super().close(linger)
            while self.made:
                os.close(self.made.pop())


class AlwaysReadable(Transport):
    caught_by = "an_idle_end_is_quiet"

    class server(Server):
        def __init__(self, inner):
            super().__init__(inner)
            self.loud = os.eventfd(1)

        def fileno(self):
            return self.loud

        def close(self, linger):
            super().close(linger)
            if self.loud >= 0:
                os.close(self.loud)
                self.loud = -1
