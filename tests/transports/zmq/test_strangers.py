"""Whatever else arrives at a socket: it disturbs nobody, and nothing of it is ever evaluated."""

import ast
import os
import pickle
import random
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import psutil
import pytest
import zmq as pyzmq

from enginecore_zmq.sockets import OPEN
from tests.transports.zmq.ends import serving, take, take_plain, transport, wait

ROOT = Path(__file__).parents[3]
LIMIT = 200_000


class Evil:
    """Shows whether it was unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def raw_garbage(pickled):
    """Bytes for a connection, not one of which a ZMQ peer would send, or not like that."""
    greeting = b"\xff" + b"\0" * 8 + b"\x7f"
    rng = random.Random(1)
    return [
        b"",
        pickled,
        b"GET / HTTP/1.1\r\n\r\n",
        greeting,
        greeting + b"\x03\0NULL" + b"\0" * 48 + b"\x04\x05" + pickled,
        greeting + b"\x03\0CURVE" + b"\0" * 47 + pickled,
        greeting + b"\x01\x00" + pickled,  # an old protocol
        b"\x01\x00" + pickled,  # an older one
        b"\xff" * 500,
        b"\0" * 500,
        *[rng.randbytes(rng.randrange(1, 3000)) for _ in range(20)],
    ]


class Talk:
    """A stream of messages both ways that goes on while others do what they like."""

    def __init__(self, server, zmq):
        self.server = server
        self.channel, self.peer = server.join(zmq)
        self.number = 0
        self.others = []

    def go_on(self):
        """One message there and back. Whatever somebody else said meanwhile is kept in `others`."""
        self.number += 1
        message = [b"%d" % self.number, b"x" * (self.number % 7 * 30_000)]
        self.channel.send(message)
        while True:
            peer, frames = take_plain(self.server.channel)
            if peer == self.peer:
                break
            self.others.append((peer, frames))
        assert frames == message
        self.server.channel.send(self.peer, message)
        assert take_plain(self.channel) == message


def doors(server, directory):
    """All sockets on which this process listens for the engine core's end."""
    if server.scheme == "ipc":
        return [str(path) for path in directory.iterdir()]
    connections = psutil.Process().net_connections("tcp")
    return [("127.0.0.1", c.laddr.port) for c in connections if c.status == psutil.CONN_LISTEN]


def visit(door):
    visitor = socket.socket(socket.AF_UNIX if isinstance(door, str) else socket.AF_INET)
    visitor.connect(door)
    return visitor


def test_bytes_that_are_no_messages_disturb_nobody(zmq, server, directory, tmp_path):
    pickled = pickle.dumps(Evil(str(tmp_path / "evil")))
    talk = Talk(server, zmq)
    with ExitStack() as strangers:
        asking = strangers.enter_context(closing(Stranger(server)))
        if server.scheme == "ipc":
            asking.ask()
        all_doors = doors(server, directory)
        assert len(all_doors) == 2  # the ROUTER's and a line's
        for door in all_doors:
            for garbage in raw_garbage(pickled):
                stranger = strangers.enter_context(visit(door))
                with suppress(OSError):  # it may be thrown out meanwhile
                    stranger.sendall(garbage)
                talk.go_on()
        newcomer = server.open(zmq)  # with all of them still connected
        newcomer.send([b"hello"])
        assert take_plain(server.channel)[1] == [b"hello"]
        newcomer.close()
    talk.go_on()
    assert not (tmp_path / "evil").exists()
    talk.channel.close()


class Stranger:
    """A ZMQ socket that need not keep to anything."""

    def __init__(self, server, kind=pyzmq.DEALER):
        self.server = server
        self.socket = pyzmq.Context().socket(kind)
        self.socket.linger = 0
        self.socket.connect(server.channel.address["endpoint"])

    def ask(self):
        """Ask to be let in; the answer."""
        self.socket.send(OPEN)
        return self.server.pump_until(lambda: self.socket.poll(10) and self.socket.recv_multipart())

    def close(self):
        context = self.socket.context
        self.socket.close()
        context.term()


def test_messages_of_those_who_were_not_let_in_go_nowhere(zmq, server, tmp_path):
    pickled = pickle.dumps(Evil(str(tmp_path / "evil")))
    talk = Talk(server, zmq)
    with ExitStack() as strangers:
        for kind in (pyzmq.DEALER, pyzmq.REQ, pyzmq.ROUTER, pyzmq.PUSH, pyzmq.PULL, pyzmq.SUB, pyzmq.PAIR):
            stranger = strangers.enter_context(closing(Stranger(server, kind)))
            for message in ([pickled], [b""], [b"", pickled], [pickled] * 50, [OPEN, pickled], [b"", OPEN]):
                with suppress(pyzmq.ZMQError):
                    stranger.socket.send_multipart(message, pyzmq.NOBLOCK)
            for _ in range(5):
                talk.go_on()
    talk.go_on()
    assert talk.others == []
    assert not (tmp_path / "evil").exists()
    talk.channel.close()


def test_the_kernel_gets_what_a_front_end_sends_as_it_is(zmq, server, tmp_path):
    pickled = pickle.dumps(Evil(str(tmp_path / "evil")))
    channel, peer = server.join(zmq)
    for message in ([pickled], [OPEN], [OPEN, b""], [b"", pickled]):
        channel.send(message)
        assert take_plain(server.channel) == (peer, message)
    assert not (tmp_path / "evil").exists()
    channel.close()


@pytest.mark.parametrize("frames", [[b"x" * (LIMIT * 2)], [b"x" * (LIMIT + 1)], [b"x" * 1000] * 1000])
def test_a_front_end_that_sends_too_much_is_cut_off(directory, frames):
    """Its own end refuses to; this one has another idea of the limit."""
    small = transport(max_message_size=LIMIT)
    with serving(small, directory) as server:
        talk = Talk(server, small)
        channel, peer = server.join(small)
        channel._limit = 1 << 30
        channel.send(frames)
        heard = []
        while not is_gone(channel):
            wait(server.channel, 0.01)
            heard.append(server.channel.receive())
        channel.close()
        while (peer, None) not in heard:
            heard.append(take(server.channel))
        assert set(heard) - {None} == {(peer, None)}
        assert heard.count((peer, None)) == 1
        for _ in range(5):
            talk.go_on()
        assert talk.others == []
        talk.channel.close()


def is_gone(channel):
    """Whether a channel has ended; nothing comes before."""
    try:
        assert channel.receive() is None
    except ConnectionError:
        return True
    return False


def test_nobody_else_can_take_what_is_meant_for_a_front_end(directory):
    """Whoever connects to a line that has its front end finds nothing there, and the line's end is the front end's."""
    with serving(transport(), directory) as server:
        talk = Talk(server, transport())
        assert [path.name for path in directory.iterdir()] == ["in"]
        stranger = Stranger(server)
        name, *_ = stranger.ask()
        readers = []
        for _ in range(2):
            readers.append(stranger.socket.context.socket(pyzmq.PULL))
            readers[-1].linger = 0
            readers[-1].connect(f"ipc://{directory}/{name.decode()}")
        for _ in range(20):
            talk.go_on()
        stranger.socket.send(b"am I in?")
        for _ in range(20):
            talk.go_on()
        peers = {peer for peer, _ in talk.others}
        assert len(peers) <= 1  # let in with one of the two, or not at all
        for reader in readers:
            reader.close()
        stranger.close()
        talk.go_on()
        talk.channel.close()


def test_front_ends_cannot_guess_the_names_of_others():
    """ZMQ numbers them from the same number in every process, and aborts the process if one takes a number first."""
    code = """
from pathlib import Path
import sys
from tests.transports.zmq.ends import serving, transport
with serving(transport(), Path(sys.argv[1])) as server:
    channel, peer = server.join(transport())
    print(peer.hex())
    channel.close()
"""
    with ExitStack() as stack:
        runs = []
        for _ in range(3):
            path = stack.enter_context(tempfile.TemporaryDirectory(prefix="ec-", dir="/tmp"))
            runs.append(subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True))
        names = {run.communicate(timeout=120)[0] for run in runs}
    assert len(names) == 3


# -- the code itself -----------------------------------------------------------------------------------

EVALUATORS = {
    "pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "eval", "exec", "compile", "recv_pyobj",
    "send_pyobj", "allow_pickle", "__import__", "__reduce__", "literal_eval",
}  # fmt: skip
SOURCES = ["plugins/transports", *[f"framework/enginecore/{name}" for name in ("loop", "client")]]
FILES = [ROOT / "framework/enginecore" / name for name in ("wire.py", "processes.py")]
FILES += sorted(file for source in SOURCES for file in (ROOT / source).rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_nothing_that_talks_to_others_can_evaluate(file):
    tree = ast.parse(file.read_text())
    words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    words |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} - {"compile"}  # re.compile
    words |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            words |= {part for alias in node.names for part in alias.name.split(".")}
        if isinstance(node, ast.ImportFrom) and node.module:
            words |= set(node.module.split("."))
    assert not words & EVALUATORS
