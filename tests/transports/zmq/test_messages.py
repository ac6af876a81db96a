"""Messages: whole, in order, once, whatever their size; and how an end is waited for."""

import asyncio
import hashlib
import os
import select
import selectors

import pytest

from enginecore.errors import InvalidRequestError
from tests.transports.zmq.ends import PATIENCE, plain, serving, take, take_plain, transport

LIMIT = 1 << 20
SIZES = (0, 1, 255, 256, 4096, (64 << 10) - 1, 64 << 10, (64 << 10) + 1, 200_000, LIMIT)


def test_messages_of_all_sizes_both_ways(directory):
    for address in ("ipc", "tcp://127.0.0.1"):
        zmq = transport(address, max_message_size=LIMIT)
        with serving(zmq, directory) as server:
            channel, peer = server.join(zmq)
            for size in SIZES:
                message = [os.urandom(size)]
                channel.send(message)
                assert take_plain(server.channel) == (peer, message)
                server.channel.send(peer, message)
                assert take_plain(channel) == message
            channel.close()


def test_several_frames_stay_one_message(zmq, server):
    channel, peer = server.join(zmq)
    message = [b"", b"a", os.urandom(100_000), b"", os.urandom(70_000), b"b" * 100]
    for _ in range(3):
        channel.send(message)
        server.channel.send(peer, message)
    for _ in range(3):
        assert take_plain(server.channel) == (peer, message)
        assert take_plain(channel) == message
    channel.close()


def test_frames_may_be_any_contiguous_memory(zmq, server):
    channel, peer = server.join(zmq)
    numbers = memoryview(bytearray(range(240))).cast("I")  # 60 items, 240 bytes
    frames = [bytearray(b"x" * 70_000), memoryview(b"y" * 70_000)[1:], numbers]
    channel.send(frames)
    server.channel.send(peer, frames)
    whole = [b"x" * 70_000, b"y" * 69_999, bytes(range(240))]
    assert take_plain(server.channel) == (peer, whole)
    assert take_plain(channel) == whole
    channel.close()


@pytest.mark.parametrize("bad", [memoryview(b"abcdef")[::2], "text", None, 5])
def test_what_is_no_frame_is_refused_before_a_part_of_the_message_has_left(zmq, server, bad):
    channel, peer = server.join(zmq)
    for send in (channel.send, lambda frames: server.channel.send(peer, frames)):
        with pytest.raises((TypeError, ValueError)):
            send([b"first", bad])
        with pytest.raises(ValueError, match="at least one frame"):
            send([])
        send([b"next"])
    assert take_plain(server.channel) == (peer, [b"next"])
    assert take_plain(channel) == [b"next"]
    channel.close()


@pytest.mark.parametrize(
    "frames", [[b"x" * (LIMIT + 1)], [b"x" * LIMIT, b"y"], [memoryview(bytes(LIMIT + 8)).cast("Q")]]
)
def test_a_message_over_the_limit_is_refused_by_its_sender(directory, frames):
    zmq = transport(max_message_size=LIMIT)
    with serving(zmq, directory) as server:
        channel, peer = server.join(zmq)
        for send in (channel.send, lambda frames: server.channel.send(peer, frames)):
            with pytest.raises(InvalidRequestError) as error:
                send(frames)
            size = sum(memoryview(frame).nbytes for frame in frames)
            expected = f"a message of {size} bytes is larger than transport.zmq.max_message_size = {LIMIT} bytes"
            assert str(error.value) == expected
            send([b"x" * (LIMIT - 1), b"y"])
        assert take_plain(server.channel) == (peer, [b"x" * (LIMIT - 1), b"y"])
        assert take_plain(channel) == [b"x" * (LIMIT - 1), b"y"]
        channel.close()


def test_the_engine_cores_limit_is_the_one_in_force(directory):
    with serving(transport(max_message_size=10_000), directory) as server:
        channel = server.open(transport(max_message_size=1 << 30))
        channel.send([b"x" * 10_000])
        with pytest.raises(InvalidRequestError, match="max_message_size = 10000 bytes"):
            channel.send([b"x" * 10_001])
        channel.close()


def test_thousands_of_messages_keep_their_order(zmq, server):
    channel, peer = server.join(zmq)
    for number in range(5000):
        channel.send([b"%d" % number])
        server.channel.send(peer, [b"%d" % number])
    for number in range(5000):
        assert take_plain(server.channel) == (peer, [b"%d" % number])
        assert take_plain(channel) == [b"%d" % number]
    channel.close()


def test_many_peers_get_what_is_theirs(zmq, server):
    pairs = [server.join(zmq) for _ in range(40)]
    assert len({peer for _, peer in pairs}) == 40
    for number in range(20):
        for channel, peer in pairs:
            channel.send([peer, b"%d" % number])
            server.channel.send(peer, [peer, b"%d" % number])
    seen: dict[bytes, list[int]] = {peer: [] for _, peer in pairs}
    for _ in range(20 * 40):
        peer, (name, number) = take_plain(server.channel)
        assert name == peer
        seen[peer].append(int(number))
    assert all(numbers == list(range(20)) for numbers in seen.values())
    for channel, peer in pairs:
        assert [take_plain(channel) for _ in range(20)] == [[peer, b"%d" % number] for number in range(20)]
        channel.close()


def test_large_frames_live_until_a_slow_reader_has_them(zmq, server):
    """Field case 87: what is not copied must not be used again while it is being sent."""
    channel, peer = server.join(zmq)
    for number in range(300):
        data = os.urandom(70_000 + 433 * number)  # up to 200 KB, each a new object that nobody else keeps
        server.channel.send(peer, [hashlib.sha256(data).digest(), data])
        del data
    garbage = [bytes([n % 256]) * 150_000 for n in range(300)]  # takes the place of whatever was let go too early
    for number in range(300):
        digest, data = take(channel)
        assert len(data) == 70_000 + 433 * number
        assert hashlib.sha256(data).digest() == bytes(digest)
    del garbage
    channel.close()


def test_received_frames_stay_what_they_are(zmq, server):
    channel, peer = server.join(zmq)
    messages = [[bytes([n]) * 100_000] for n in range(20)]
    for message in messages:
        server.channel.send(peer, message)
    received = [take(channel) for _ in messages]
    channel.close()
    assert [plain(frames) for frames in received] == messages


# -- waiting -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("selector", [selectors.SelectSelector, selectors.PollSelector, selectors.EpollSelector])
def test_one_file_descriptor_tells_when_there_is_something(zmq, server, selector):
    channel, peer = server.join(zmq)
    for number in range(50):
        for end in (server.channel, channel):
            with selector() as waiting:
                waiting.register(end.fileno(), selectors.EVENT_READ)
                assert end.receive() is None
                assert not waiting.select(0)  # idle: whoever waits does not spin
                if end is channel:
                    server.channel.send(peer, [b"%d" % number])
                else:
                    channel.send([b"%d" % number])
                assert waiting.select(PATIENCE)
                assert take_plain(end) in ([b"%d" % number], (peer, [b"%d" % number]))
    channel.close()


def test_a_front_end_may_wait_before_it_has_received_anything(zmq, server):
    channel = server.open(zmq)
    channel.send([b"hello"])
    peer, _ = take(server.channel)
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLIN)
    server.channel.send(peer, [b"welcome"])
    assert poll.poll(PATIENCE * 1000)
    assert take_plain(channel) == [b"welcome"]
    channel.close()


def test_sending_does_not_hide_what_has_arrived(zmq, server):
    channel, peer = server.join(zmq)
    for number in range(500):
        assert channel.receive() is None
        server.channel.send(peer, [b"%d" % number])
        for _ in range(3):
            channel.send([b"noise"])
        assert take_plain(channel) == [b"%d" % number]
    channel.close()


def test_an_asyncio_loop_can_wait_for_a_front_ends_end(zmq, server):
    channel, peer = server.join(zmq)

    async def run():
        loop = asyncio.get_running_loop()
        received: asyncio.Queue[list[bytes]] = asyncio.Queue()

        def read():
            while (frames := channel.receive()) is not None:
                received.put_nowait(plain(frames))

        loop.add_reader(channel.fileno(), read)
        for number in range(100):
            server.channel.send(peer, [b"%d" % number])
            assert await asyncio.wait_for(received.get(), PATIENCE) == [b"%d" % number]
        loop.remove_reader(channel.fileno())

    asyncio.run(run())
    asyncio.run(run())  # a second loop
    channel.close()
