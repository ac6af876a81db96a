"""How each end learns that the other is gone, and what has arrived before."""

import hashlib
import signal

import pytest
import zmq as pyzmq

import enginecore_zmq.server
from enginecore_zmq.sockets import OPEN
from tests.transports.zmq.ends import PATIENCE, serving, take, take_plain, transport
from tests.transports.zmq.processes import OtherEnd
from tests.transports.zmq.proxy import Proxy

LINGER = 1000.0  # longer than a test may take: nobody waits for it if everything has left


def other_front_end(server, messages=1):
    """A front end's end in another process."""
    return OtherEnd("front_end", scheme=server.scheme, address=dict(server.channel.address), messages=messages)


def expect_gone(channel):
    with pytest.raises(ConnectionError, match="the engine core's end of the line is gone"):
        take(channel)


# -- front ends that leave ---------------------------------------------------------------------------


def test_a_front_end_that_closes_is_gone_once(zmq, server):
    leaving, left = server.join(zmq)
    staying, stays = server.join(zmq)
    leaving.close()
    assert take_plain(server.channel) == (left, None)
    server.channel.send(left, [b"to nobody"])
    staying.send([b"still here"])
    assert take_plain(server.channel) == (stays, [b"still here"])
    assert server.channel.receive() is None
    staying.close()


def test_messages_that_have_arrived_come_before_the_end(zmq, server):
    with other_front_end(server, messages=500) as other:
        assert server.hear(other) == {"open": True}
        other.go_on()
        peer, frames = take_plain(server.channel)
        assert frames == [b"0"]
        last = [b"0"]
        other.kill()
        while frames is not None:
            name, frames = take_plain(server.channel)
            assert name == peer
            if frames is not None:
                last.append(frames[0])
        assert last == [b"%d" % number for number in range(len(last))]
        assert server.channel.receive() is None


def test_a_front_end_that_is_killed_is_gone_and_disturbs_nobody(zmq, server):
    staying, stays = server.join(zmq)
    with other_front_end(server) as other:
        assert server.hear(other) == {"open": True}
        other.go_on()
        killed, _ = take_plain(server.channel)
        for number in range(200):
            server.channel.send(killed, [b"x" * 100_000])  # more than its sockets hold
            if number == 100:
                other.kill()
        assert take_plain(server.channel) == (killed, None)
    server.channel.send(killed, [b"to nobody"])
    server.channel.send(stays, [b"to somebody"])
    assert take_plain(staying) == [b"to somebody"]
    staying.close()


def test_sending_never_waits_for_a_front_end_that_does_not_read(zmq, server):
    """Nor does anybody else; and when it goes on, nothing is missing."""
    reading, reads = server.join(zmq)
    scheme, address = server.scheme, dict(server.channel.address)
    with OtherEnd("reader", scheme=scheme, address=address, messages=3000) as other:
        assert server.hear(other) == {"open": True}
        other.go_on()
        peer, _ = take_plain(server.channel)
        other.signal(signal.SIGSTOP)
        digest = hashlib.sha256()
        for number in range(3000):
            frames = [b"%d" % number, bytes([number % 256]) * 10_000]
            server.channel.send(peer, frames)
            digest.update(b"".join(frames))
            if number % 100 == 0:
                server.channel.send(reads, [b"%d" % number])
                assert take_plain(reading) == [b"%d" % number]
        other.signal(signal.SIGCONT)
        other.go_on()
        assert other.hear() == {"digest": digest.hexdigest()}
    reading.close()


def test_a_front_end_that_leaves_before_its_first_word_is_gone_too(zmq, server):
    channel = server.open(zmq)
    channel.close()
    peer, frames = take(server.channel)
    assert frames is None
    server.channel.send(peer, [b"to nobody"])


def test_a_front_end_may_come_again(zmq, server):
    names = set()
    for _ in range(20):
        channel, peer = server.join(zmq)
        channel.close()
        assert take(server.channel) == (peer, None)
        names.add(peer)
    assert len(names) == 20


def test_what_is_sent_to_those_who_are_gone_or_never_came_goes_nowhere(zmq, server):
    server.channel.send(b"never seen", [b"x"])
    channel, peer = server.join(zmq)
    channel.close()
    for _ in range(1000):  # before and after the end is noticed
        server.channel.send(peer, [b"x", b"y" * 70_000])
    assert take(server.channel) == (peer, None)
    assert server.channel.receive() is None


# -- engine cores that leave -------------------------------------------------------------------------


def test_an_engine_core_that_closes_is_gone_after_its_last_word(zmq, directory):
    with serving(zmq, directory) as server:
        channel, peer = server.join(zmq)
        for number in range(100):
            server.channel.send(peer, [b"%d" % number])
        server.channel.close(LINGER)
        for number in range(100):
            assert take_plain(channel) == [b"%d" % number]
        for _ in range(2):
            expect_gone(channel)
        channel.send([b"to nobody"])
        channel.close()


@pytest.mark.parametrize("scheme", ["ipc", "tcp://127.0.0.1"])
@pytest.mark.parametrize("linger", [None, LINGER])
def test_all_that_has_left_a_process_comes_before_its_end(directory, scheme, linger):
    words = {"directory": str(directory), "scheme": scheme, "messages": 2000, "linger": linger}
    with OtherEnd("engine_core", **words) as other:
        channel = transport(scheme).open(other.hear()["address"], PATIENCE)
        channel.send([b"hello"])
        assert take_plain(channel)[0] == b"0"
        if linger is None:
            for number in range(1, 2000):
                assert take_plain(channel)[0] == b"%d" % number
        assert other.hear() == {"sent": True}
        other.kill()
        if linger is not None:
            for number in range(1, 2000):
                assert take_plain(channel)[0] == b"%d" % number
        expect_gone(channel)
        channel.send([b"to nobody"])
        channel.close()


def test_what_has_arrived_can_be_read_long_after_the_end(zmq, directory):
    with serving(zmq, directory) as server:
        channel, peer = server.join(zmq)
        for number in range(5000):
            server.channel.send(peer, [b"%d" % number])
        server.channel.close(LINGER)
    assert channel._pull_events.socket.poll(PATIENCE * 1000)  # it knows, and nobody has asked it yet
    for number in range(5000):
        assert take_plain(channel) == [b"%d" % number]
    expect_gone(channel)
    channel.close()


def test_nobody_answers(zmq, directory):
    with serving(zmq, directory) as server:
        address = server.channel.address
        with pytest.raises(ConnectionError, match=r"no engine core answers at .* within 0.2 seconds"):
            zmq.open(address, 0.2)  # nobody takes what arrives
    with pytest.raises(ConnectionError, match=r"no engine core answers at .* within 0.2 seconds"):
        zmq.open(address, 0.2)  # nobody listens


# -- front ends that never quite come --------------------------------------------------------------------


class Stranger:
    """Asks to be let in, and no more."""

    def __init__(self, server):
        self.socket = pyzmq.Context().socket(pyzmq.DEALER)
        self.socket.linger = 0
        self.socket.connect(server.channel.address["endpoint"])

    def ask(self, server):
        self.socket.send(OPEN)
        return server.pump_until(lambda: self.socket.poll(10) and self.socket.recv_multipart())

    def close(self):
        context = self.socket.context
        self.socket.close()
        context.term()


def test_those_who_ask_and_do_not_come_are_let_go_again(directory, monkeypatch):
    monkeypatch.setattr(enginecore_zmq.server, "MAX_PEERS", 3)
    with serving(transport(), directory) as server:
        channel, _ = server.join(transport())
        strangers = [Stranger(server) for _ in range(2)]
        for stranger in strangers:
            name, key, limit = stranger.ask(server)
            assert (directory / name.decode()).is_socket()
            assert (key, limit) == (b"", b"67108864")
        with pytest.raises(ConnectionError, match="refuses: 3 front ends are connected already"):
            server.open(transport())
        monkeypatch.setattr(enginecore_zmq.server, "OPENING_TIME", 0.0)
        other, _ = server.join(transport())
        assert [path.name for path in directory.iterdir()] == ["in"]  # no line is left open
        for end in (channel, other, *strangers):
            end.close()


def test_whoever_asks_again_gets_a_new_line(directory):
    with serving(transport(), directory) as server:
        stranger = Stranger(server)
        names = [stranger.ask(server)[0].decode() for _ in range(5)]
        assert names == ["o1", "o2", "o3", "o4", "o5"]
        assert sorted(path.name for path in directory.iterdir()) == ["in", "o5"]
        stranger.close()


# -- lines that break --------------------------------------------------------------------------------


def test_a_line_of_which_one_half_breaks_is_gone_for_both_ends(directory):
    """As may happen on the way between two machines. The front end cannot be heard any more, so it must be told."""
    tcp = transport("tcp://127.0.0.1")
    with serving(tcp, directory) as server, Proxy(server.channel.address["endpoint"]) as proxy:
        channel = server.open(tcp, {**server.channel.address, "endpoint": proxy.endpoint})
        channel.send([b"hello"])
        peer, _ = take_plain(server.channel)
        server.channel.send(peer, [b"welcome"])
        proxy.cut()
        assert take_plain(channel) == [b"welcome"]
        expect_gone(channel)
        channel.close()
        assert take_plain(server.channel) == (peer, None)
