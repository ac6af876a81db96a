"""Checks: messages arrive whole, in order, once, and at the right peer."""

import itertools
from collections.abc import Callable, Sequence

from enginecore.interfaces import Channel, Frame, ServerChannel
from enginecore_conformance.checks import Violation, check
from enginecore_conformance.transports.bench import ChannelBench
from enginecore_conformance.transports.payloads import Numbered, batches, expect, message, numbered

MANY = 10_000
LARGE = 1 << 20
SHAPES = (
    (0,), (1,), (65_535,), (65_536,), (65_537,), (LARGE,), (0, 0, 1), (1, 65_537, 0, 65_536), (3,) * 1500,
    (LARGE, 0, LARGE), (7,),
)  # fmt: skip
"""Sizes of frames, by message: around the sizes of buffers, and none at all."""


def as_any_frame(frames: Sequence[bytes]) -> list[Frame]:
    """The same content as bytes, bytearray and memoryview in turn."""
    kinds: tuple[Callable[[bytes], Frame], ...] = (bytes, bytearray, lambda frame: memoryview(bytearray(frame)))
    return [kinds[number % 3](frame) for number, frame in enumerate(frames)]


@check("transport", "channels")
def messages_arrive_whole(bench: ChannelBench) -> None:
    """A message arrives as the frames that were sent, whatever their number and size, be they
    bytes, bytearray or memoryview, which stay as they were; both ways.
    """
    server, channel, peer = bench.pair()
    right = [message(number, *shape) for number, shape in enumerate(SHAPES)]
    sent = [as_any_frame(frames) for frames in right]
    for any_frames in sent:
        channel.send(any_frames)
        server.send(peer, any_frames)
    for number, frames in enumerate(right):
        expect(bench.take_from(server, peer), frames, f"message {number} to the engine core")
        expect(bench.take_message(channel), frames, f"message {number} to the front end")
        expect(sent[number], frames, f"message {number}, in the hands of its sender")


@check("transport", "channels")
def messages_arrive_in_order_and_once(bench: ChannelBench) -> None:
    """Messages of one peer arrive in order, none is lost, none comes twice: 10,000 each way at the
    same time.
    """
    server, channel, peer = bench.pair()
    others = bench.start_call(_send_all, server, peer), bench.start_call(_talk, bench, channel)
    wanted = Numbered("up")
    while wanted.count < MANY:
        wanted.take(bench.take_from(server, peer), "to the engine core")
    for other in others:
        other.result()
    bench.expect_silence(server)
    bench.expect_silence(channel)


def _send_all(server: ServerChannel, peer: bytes) -> None:
    for number in range(MANY):
        server.send(peer, numbered("down", number))


def _talk(bench: ChannelBench, channel: Channel) -> None:
    """A front end's end is used by one thread, which sends and receives in turn."""
    wanted = Numbered("down")
    for batch in batches(MANY, 100):
        for number in batch:
            channel.send(numbered("up", number))
        while (frames := channel.receive()) is not None:
            wanted.take(frames, "to the front end")
    while wanted.count < MANY:
        wanted.take(bench.take_message(channel), "to the front end")


@check("transport", "channels")
def peers_are_kept_apart(bench: ChannelBench) -> None:
    """Each front end is one peer, under one name of bytes; it gets what was sent to that name and
    nothing else. 20 at once.
    """
    server = bench.listen()
    channels = [bench.open(server) for _ in range(20)]
    for number, (at, channel) in itertools.product(range(50), enumerate(channels)):
        channel.send(numbered(f"peer{at}", number))
    wanted: dict[bytes, tuple[int, Numbered]] = {}
    for _ in range(50 * len(channels)):
        peer, frames = bench.take_message(server)
        if frames is None:
            raise Violation(f"peer {peer!r} is reported gone", "all 20 are there")
        if peer not in wanted:
            at = int(bytes(frames[0]).split(b":")[0][4:])
            wanted[peer] = at, Numbered(f"peer{at}")
        wanted[peer][1].take(frames, f"from peer {peer!r}")
    if {type(peer) for peer in wanted} != {bytes} or len(wanted) != len(channels):
        raise Violation(f"20 front ends are peers {list(wanted)}", "20 names, each of bytes")
    for number, (peer, (at, _)) in itertools.product(range(5), wanted.items()):
        server.send(peer, numbered(f"answer{at}", number))
    for at, channel in enumerate(channels):
        answers = Numbered(f"answer{at}")
        for _ in range(5):
            answers.take(bench.take_message(channel), f"to front end {at}")
    for channel in channels:
        bench.expect_silence(channel, 0.001)


@check("transport", "channels")
def names_are_not_used_again(bench: ChannelBench) -> None:
    """A message to a peer that is gone never reaches another one: its name is not given out
    again.
    """
    server, channel, peer = bench.pair()
    channel.close()
    if (gone := bench.take_message(server)) != (peer, None):
        raise Violation(f"{gone!r:.200} came", f"{(peer, None)}: it has closed its end")
    for _ in range(3):
        newcomer, name = bench.join(server)
        server.send(peer, [b"for the one that is gone"])
        server.send(name, [b"for the newcomer"])
        expect(bench.take_message(newcomer), [b"for the newcomer"], "to a newcomer")


@check("transport", "channels")
def large_messages_reach_a_slow_reader_intact(bench: ChannelBench) -> None:
    """Frames that wait for a slow reader stay as they were sent, although their sender has let go
    of them.
    """
    server, channel, peer = bench.pair()
    sizes = [70_000 + 997 * number for number in range(60)]
    for number, size in enumerate(sizes):
        server.send(peer, as_any_frame(message(("down", number), 10, size)))
        channel.send(as_any_frame(message(("up", number), 10, size)))
    for number, size in enumerate(sizes):
        expect(bench.take_message(channel), message(("down", number), 10, size), f"message {number} to the front end")
        up = message(("up", number), 10, size)
        expect(bench.take_from(server, peer), up, f"message {number} to the engine core")


@check("transport", "channels")
def received_frames_do_not_change(bench: ChannelBench) -> None:
    """A frame that was received stays as it is while others are received."""
    server, channel, peer = bench.pair()
    sent = [message(number, 40, 5_000 + number, 0) for number in range(200)]
    for frames in sent:
        channel.send(frames)
        server.send(peer, frames)
    received = [(bench.take_from(server, peer), bench.take_message(channel)) for _ in sent]
    for number, (right, (up, down)) in enumerate(zip(sent, received, strict=True)):
        expect(up, right, f"message {number} to the engine core, looked at after all have come")
        expect(down, right, f"message {number} to the front end, looked at after all have come")


@check("transport", "channels")
def content_is_only_carried(bench: ChannelBench) -> None:
    """Frames are bytes to the transport: what looks like a pickle, or like a message of its own, is
    carried on.
    """
    server, channel, peer = bench.pair()
    pickle = b"cbuiltins\nexec\n(S'raise SystemExit'\ntR."
    for frames in ([pickle], [b""], [b"", b""], [b"\xff" * 64], [b"\0" * 64, pickle]):
        channel.send(frames)
        expect(bench.take_from(server, peer), frames, "to the engine core")
        server.send(peer, frames)
        expect(bench.take_message(channel), frames, "to the front end")
