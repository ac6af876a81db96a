"""Bugs in what is carried: lost, doubled, mixed up, changed."""

import contextlib
import pickle
from collections import deque
from typing import Any

from tests.conformance.transports.mutants.proxies import Channel, Server, Transport


class DropsOne(Transport):
    caught_by = "messages_arrive_in_order_and_once"

    class server(Server):
        count = 0

        def receive(self):
            self.count += 1
            received = self.inner.receive()
            return self.inner.receive() if self.count % 1000 == 999 else received


class DeliversTwice(Transport):
    caught_by = "messages_arrive_in_order_and_once"

    class channel(Channel):
        count = 0
        again = None

        def receive(self):
            self.count += 1
            if self.again:
                frames, self.again = self.again, None
                return frames
            frames = self.inner.receive()
            self.again = frames if self.count % 1000 == 999 else None
            return frames


class SwapsMessages(Transport):
    caught_by = "messages_arrive_in_order_and_once"

    class server(Server):
        def __init__(self, inner):
            super().__init__(inner)
            self.held: Any = deque()
            self.count = 0

        def receive(self):
            self.count += 1
            if self.held:
                return self.held.popleft()
            received = self.inner.receive()
            if self.count % 500 or received is None or (after := self.inner.receive()) is None:
                return received
            self.held.append(received)
            return after


class SwapsFrames(Transport):
    caught_by = "messages_arrive_whole"

    class channel(Channel):
        def send(self, frames):
            self.inner.send([*frames[-1:], *frames[1:-1], *frames[:1]] if len(frames) > 1 else frames)


class JoinsFrames(Transport):
    caught_by = "messages_arrive_whole"

    class server(Server):
        def send(self, peer, frames):
            self.inner.send(peer, [b"".join(frames)])


class DropsEmptyFrames(Transport):
    caught_by = "messages_arrive_whole"

    class channel(Channel):
        def send(self, frames):
            self.inner.send([frame for frame in frames if len(frame)] or [b""])


class Truncates(Transport):
    caught_by = "messages_arrive_whole"

    class channel(Channel):
        def receive(self):
            frames = self.inner.receive()
            return frames and [frame[:65536] for frame in frames]


class ScribblesOnFrames(Transport):
    caught_by = "messages_arrive_whole"

    class server(Server):
        def send(self, peer, frames):
            self.inner.send(peer, [bytes(frame) for frame in frames])
            for frame in frames:
                if isinstance(frame, bytearray):
                    frame[:] = bytes(len(frame))


class ReusesSendBuffer(Transport):
    caught_by = "large_messages_reach_a_slow_reader_intact"

    class server(Server):
        def __init__(self, inner):
            super().__init__(inner)
            self.buffer = bytearray(4 << 20)

        def send(self, peer, frames):
            views, start = [], 0
            for frame in frames:
                self.buffer[start : start + len(frame)] = frame
                views.append(memoryview(self.buffer)[start : start + len(frame)])
                start += len(frame)
            self.inner.send(peer, views)


class ReusesReceiveBuffer(Transport):
    caught_by = "received_frames_do_not_change"

    class channel(Channel):
        def __init__(self, inner):
            super().__init__(inner)
            self.buffer = bytearray(4 << 20)

        def receive(self):
            frames = self.inner.receive()
            if frames is None:
                return None
            views, start = [], 0
            for frame in frames:
                self.buffer[start : start + len(frame)] = frame
                views.append(memoryview(self.buffer)[start : start + len(frame)])
                start += len(frame)
            return views


class WrongPeer(Transport):
    caught_by = "peers_are_kept_apart"

    class server(Server):
        def __init__(self, inner):
            super().__init__(inner)
            self.last, self.count = b"", 0

        def send(self, peer, frames):
            self.count += 1
            self.inner.send(self.last if self.count % 50 == 0 else peer, frames)
            self.last = peer


class MixesFrontEnds(Transport):
    caught_by = "front_ends_share_an_engine_core"
    limits = 2.0, 20.0

    class server(Server):
        """Once all are welcome, the first one hears what is for others, too."""

        first = b""
        count = 0

        def send(self, peer, frames):
            self.first = self.first or peer
            self.count += 1
            self.inner.send(self.first if self.count > 3 and self.count % 2 else peer, frames)


class UsesNamesAgain(Transport):
    caught_by = "names_are_not_used_again"

    class server(Server):
        def __init__(self, inner):
            super().__init__(inner)
            self.names = {}

        def receive(self):
            received = self.inner.receive()
            if received is None:
                return None
            free = next(name for number in range(1000) if (name := b"%d" % number) not in self.names.values())
            name = self.names.setdefault(received[0], free)
            if received[1] is None:
                del self.names[received[0]]
            return name, received[1]

        def send(self, peer, frames):
            for inner, name in self.names.items():
                if name == peer:
                    self.inner.send(inner, frames)


class Unpickles(Transport):
    caught_by = "content_is_only_carried"

    class server(Server):
        def receive(self):
            received = self.inner.receive()
            if received and received[1]:
                with contextlib.suppress(Exception):
                    pickle.loads(received[1][0])
            return received
