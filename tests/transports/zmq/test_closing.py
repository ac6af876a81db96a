"""What closing takes, and what it leaves: nothing."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from enginecore.errors import ConfigurationError
from tests.transports.zmq.ends import Server, serving, take, take_plain, transport
from tests.transports.zmq.processes import OtherEnd

BOUND = 20.0
"""Seconds; a close without a bound takes for ever."""


def held():
    """File descriptors and threads of this process, ZMQ's own included."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), threading.enumerate()


def until_held(before):
    deadline = time.monotonic() + BOUND
    while (now := held()) != before and time.monotonic() < deadline:
        time.sleep(0.01)  # a thread that has ended is listed for a moment
    return now


@pytest.fixture(autouse=True)
def _zero_copy_thread(tmp_path):
    """pyzmq keeps one thread for the whole process from the first large frame on; it is not ours to end."""
    with serving(transport(), tmp_path) as server:
        channel, peer = server.join(transport())
        server.channel.send(peer, [b"x" * 100_000])
        take(channel)
        channel.close()


def test_nothing_is_left(zmq, directory):
    before = held()
    with serving(zmq, directory) as server:
        pairs = [server.join(zmq) for _ in range(5)]
        for channel, peer in pairs:
            channel.send([b"x" * 200_000])
            server.channel.send(peer, [b"x" * 200_000])
        for channel, _ in pairs[:3]:
            channel.close()
            channel.close()
    server.channel.close(1.0)
    for channel, _ in pairs[3:]:
        channel.close()
    assert until_held(before) == before
    assert not list(directory.iterdir())


def test_nothing_is_left_after_many_front_ends(zmq, directory):
    before = held()
    with serving(zmq, directory) as server:
        idle = held()
        for _ in range(50):
            channel, peer = server.join(zmq)
            channel.close()
            assert take(server.channel) == (peer, None)
        assert until_held(idle) == idle
    assert until_held(before) == before


def test_nothing_is_left_after_many_engine_cores(zmq, directory):
    before = held()
    for _ in range(20):
        with serving(zmq, directory) as server:
            channel, _ = server.join(zmq)
            channel.close()
    assert until_held(before) == before


def test_ends_that_nobody_closed_are_closed_when_they_are_forgotten(zmq, directory):
    before = held()
    server = Server(zmq.listen(directory))
    channel, peer = server.join(zmq)
    del channel
    gc.collect()
    assert take(server.channel) == (peer, None)
    channel, _ = server.join(zmq)
    del server
    gc.collect()
    with pytest.raises(ConnectionError):
        take(channel)
    channel.close()
    assert until_held(before) == before


@pytest.mark.parametrize("address", ["ipc", "tcp://127.0.0.1"])
def test_a_process_may_end_with_ends_open(directory, address):
    code = """
import sys
from pathlib import Path
from tests.transports.zmq.ends import Server, transport
zmq = transport(sys.argv[1])
server = Server(zmq.listen(Path(sys.argv[2])))
channel, peer = server.join(zmq)
"""
    subprocess.run([sys.executable, "-c", code, address, str(directory)], timeout=120, check=True)


def test_nothing_is_left_of_an_end_that_was_never_made(zmq, directory):
    before = held()
    with serving(zmq, directory) as server:
        address = server.channel.address
    with pytest.raises(ConnectionError):
        zmq.open(address, 0.1)
    for bad in ({}, {"endpoint": 5}, {"endpoint": "inproc://x"}, {"endpoint": "tcp://127.0.0.1:1"}):
        with pytest.raises(ConfigurationError):
            zmq.open(bad, 0.1)
    for keys in ({"server": "x" * 40}, {"server": "x", "public": "x", "secret": "x"}, "keys", None):
        with pytest.raises((ConfigurationError, ConnectionError)):
            zmq.open({"endpoint": "tcp://127.0.0.1:1", "keys": keys}, 0.1)
    with pytest.raises(ConnectionError, match="cannot connect to tcp://nowhere"):
        zmq.open({"endpoint": "tcp://nowhere", "keys": transport_keys()}, 0.1)
    assert until_held(before) == before


def transport_keys():
    """Keys that are well-formed."""
    from enginecore_zmq.keys import fresh_keys

    issued = fresh_keys().issued
    assert issued is not None
    return issued.to_plain()


def test_an_address_that_is_taken_is_refused_and_leaves_nothing(directory):
    with serving(transport("tcp://127.0.0.1"), directory) as server:
        before = held()
        port = server.channel.address["endpoint"].rpartition(":")[2]
        with pytest.raises(ConfigurationError) as error:
            transport(f"tcp://127.0.0.1:{port}").listen(directory)
        assert f"cannot listen at tcp://127.0.0.1:{port}: Address already in use" in str(error.value)
        assert until_held(before) == before


def test_a_directory_that_will_not_do_is_refused(tmp_path):
    for directory in (tmp_path / "missing", tmp_path / ("long" * 50)):
        with pytest.raises(ConfigurationError, match="the directory must be there and its path short"):
            transport().listen(directory)


# -- how long it takes -------------------------------------------------------------------------------


@pytest.mark.parametrize("linger", [0.0, 0.2])
def test_close_is_bounded_if_a_front_end_does_not_read(zmq, server, linger):
    """Field case 89: unsent messages, and a reader that will never come."""
    with OtherEnd("front_end", scheme=server.scheme, address=dict(server.channel.address)) as other:
        assert server.hear(other) == {"open": True}
        other.go_on()
        peer, _ = take_plain(server.channel)
        other.signal(signal.SIGSTOP)
        for _ in range(300):
            server.channel.send(peer, [b"x" * 200_000])
        began = time.monotonic()
        server.channel.close(linger)
        assert time.monotonic() - began < BOUND


def test_close_is_bounded_if_front_ends_are_dead(zmq, server):
    with OtherEnd("front_end", scheme=server.scheme, address=dict(server.channel.address)) as other:
        assert server.hear(other) == {"open": True}
        other.go_on()
        peer, _ = take_plain(server.channel)
        other.signal(signal.SIGSTOP)
        for _ in range(300):
            server.channel.send(peer, [b"x" * 200_000])
        other.kill()
        began = time.monotonic()
        server.channel.close(0.5)
        assert time.monotonic() - began < BOUND


def test_close_gives_what_was_sent_time_to_leave(zmq, server):
    channel, peer = server.join(zmq)
    for number in range(50):
        server.channel.send(peer, [b"%d" % number, b"x" * 200_000])
    server.channel.close(1000.0)
    for number in range(50):
        assert take_plain(channel) == [b"%d" % number, b"x" * 200_000]
    channel.close()


def test_a_front_end_that_does_not_read_does_not_keep_its_own_end(zmq, server):
    channel, peer = server.join(zmq)
    for _ in range(100):
        channel.send([b"x" * 200_000])
        server.channel.send(peer, [b"x" * 200_000])
    began = time.monotonic()
    channel.close()
    assert time.monotonic() - began < BOUND


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_may_close_what_it_inherits(zmq, server):
    """It ends nothing: both ends are its parent's, and so are ZMQ's threads."""
    channel, peer = server.join(zmq)
    child = os.fork()
    if child == 0:
        signal.alarm(int(BOUND))  # kills one that hangs
        server.channel.close(1000.0)
        channel.close()
        del server.channel, channel
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    channel.send([b"still here"])
    assert take_plain(server.channel) == (peer, [b"still here"])
    server.channel.send(peer, [b"here too"])
    assert take_plain(channel) == [b"here too"]
    channel.close()
