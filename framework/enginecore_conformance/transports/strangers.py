"""Checks: strangers on the sockets of an engine core disturb no front end."""

import random
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import psutil

from enginecore.interfaces import Channel, ServerChannel
from enginecore_conformance.checks import Violation, check
from enginecore_conformance.transports.bench import ChannelBench
from enginecore_conformance.transports.payloads import expect, numbered

Door = str | tuple[str, int]

GARBAGE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\0", b"\0" * 64, b"\0" * 5000, b"\xff" * 64, b"\x7f" * 64,
    b"\x01" * 64,
    b"cos\nsystem\n(S'exit 1'\ntR.", b"hello", *(random.Random(seed).randbytes(4000) for seed in range(20)),
)  # fmt: skip


@check("transport", "channels")
def strangers_disturb_no_front_end(bench: ChannelBench) -> None:
    """Bytes that are no messages, on every socket that the engine core's end has opened, and
    connections that say nothing, end or stay: front ends go on, and more can come.
    """
    ports = _ports()
    directory = bench.directory()
    server = bench.listen(directory=directory)
    channel, peer = bench.join(server)
    doors: list[Door] = [str(path) for path in directory.rglob("*") if stat.S_ISSOCK(path.stat().st_mode)]
    doors += [("127.0.0.1", port) for port in sorted(_ports() - ports)]
    with ExitStack() as visits:
        number = 0
        for number, garbage in enumerate(garbage for _ in doors for garbage in (b"", *GARBAGE)):
            door = doors[number // (len(GARBAGE) + 1)]
            stranger = visits.enter_context(_visit(door))
            with suppress(OSError):  # it may be thrown out
                stranger.sendall(garbage)
                if number % 2:
                    stranger.shutdown(socket.SHUT_WR)
            _expect_talk(bench, server, channel, peer, number)
        newcomer, name = _let_in(bench, server)
        _expect_talk(bench, server, newcomer, name, number + 1)
    _expect_talk(bench, server, channel, peer, number + 2)
    _expect_talk(bench, server, newcomer, name, number + 3)


def _ports() -> set[int]:
    """TCP ports on which this process listens."""
    connections = psutil.Process().net_connections("tcp")
    return {connection.laddr.port for connection in connections if connection.status == psutil.CONN_LISTEN}


def _visit(door: Door) -> socket.socket:
    stranger = socket.socket(socket.AF_UNIX if isinstance(door, str) else socket.AF_INET)
    stranger.settimeout(1.0)
    with suppress(OSError):
        stranger.connect(door)
    return stranger


def _let_in(bench: ChannelBench, server: ServerChannel) -> tuple[Channel, bytes]:
    channel = bench.open(server)
    channel.send([b"a newcomer"])
    for peer, frames in _received(bench, server):
        if frames == [b"a newcomer"]:
            return channel, peer
    raise Violation("a newcomer is not heard while strangers are there", "more front ends can come")


def _expect_talk(bench: ChannelBench, server: ServerChannel, channel: Channel, peer: bytes, number: int) -> None:
    channel.send(numbered("up", number))
    for name, frames in _received(bench, server):
        if name == peer:  # what a stranger sent may look like a message; the kernel tells
            expect(frames, numbered("up", number), "from a front end, with strangers about")
            break
    server.send(peer, numbered("down", number))
    expect(bench.take_message(channel), numbered("down", number), "to a front end, with strangers about")


def _received(bench: ChannelBench, server: ServerChannel) -> Iterator[tuple[bytes, list[bytes]]]:
    while True:
        peer, frames = bench.take_message(server)
        yield peer, [bytes(frame) for frame in frames or ()]
