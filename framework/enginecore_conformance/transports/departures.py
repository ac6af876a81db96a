"""Checks: an end that goes is seen at the other one, once, after all of its messages."""

import time
from collections.abc import Mapping
from typing import Any

from enginecore_conformance.checks import Violation, check
from enginecore_conformance.transports.bench import CHILD_START, ChannelBench, wait_for
from enginecore_conformance.transports.payloads import Numbered, expect, message, numbered

MEGABYTE = 1 << 20


@check("transport", "channels")
def a_front_end_that_closes_is_gone_once(bench: ChannelBench) -> None:
    """(peer, None) comes when a front end has closed its end: once, after its messages, and others
    stay.
    """
    server = bench.listen()
    stays, stays_peer = bench.join(server)
    for number in range(5):
        channel, peer = bench.join(server)
        wanted = Numbered("last")
        for last in range(20):
            channel.send(numbered("last", last))
        channel.close()
        while (received := bench.take_message(server))[1] is not None:
            wanted.take(received[1], "from a front end that has closed its end")  # all of it, or less at the end
        if received[0] != peer:
            raise Violation(f"peer {received[0]!r} is reported gone", f"it is {peer!r} that has closed its end")
        bench.expect_silence(server, 0.02)
        stays.send(numbered("stays", number))
        expect(bench.take_from(server, stays_peer), numbered("stays", number), "from a front end that stays")


@check("transport", "channels")
def a_front_end_that_is_killed_is_gone_once(bench: ChannelBench) -> None:
    """(peer, None) comes when a front end's process is killed by SIGKILL while it sends: once,
    after whole messages of it, and others stay.
    """
    server = bench.listen()
    stays, stays_peer = bench.join(server)
    child = bench.child("front_end", address=dict(server.address), count=40, size=MEGABYTE)
    peer, frames = bench.take_message(server, CHILD_START)
    expect(frames or [], [b"hello"], "from another process")
    server.send(peer, [b"go on"])
    bench.report_of(child)  # all is sent, and no more of it taken here than what the transport buffers
    expect(bench.take_from(server, peer), message(0, MEGABYTE), "message 0 of another process")
    child.kill()
    number = 1
    while (received := bench.take_message(server))[1] is not None:
        expect(received[1], message(number, MEGABYTE), f"message {number} of a process that was killed")
        number += 1
    if received[0] != peer:
        raise Violation(f"peer {received[0]!r} is reported gone", f"it is {peer!r} that was killed")
    bench.expect_silence(server)
    server.send(peer, [b"too late"])
    stays.send([b"stays"])
    expect(bench.take_from(server, stays_peer), [b"stays"], "from a front end that stays")


@check("transport", "channels")
def the_end_of_the_engine_core_is_seen(bench: ChannelBench) -> None:
    """When the engine core's end has closed, every front end receives what was sent, then
    ConnectionError, again and again; and `fileno` becomes readable.
    """
    server = bench.listen()
    pairs = [bench.join(server) for _ in range(3)]
    for pair, number in ((pair, number) for number in range(20) for pair in pairs):
        server.send(pair.peer, numbered("last", number))
    server.close(bench.patience)
    for channel, _ in pairs:
        wanted = Numbered("last")
        while wanted.count < 20:
            wanted.take(bench.take_message(channel), "before the end of the engine core's end")
        for _ in range(3):
            bench.take_end(channel)


@check("transport", "channels")
def the_end_is_seen_by_those_who_wait_for_it(bench: ChannelBench) -> None:
    """An end that goes while the other one waits on `fileno` makes it readable; both ways."""
    server, channel, _ = bench.pair()
    gone, gone_peer = bench.join(server)
    for end in (server, channel):
        if end.receive() is not None:
            raise Violation("something came", "nothing was sent")
    gone.close()
    if not wait_for(server.fileno(), bench.patience):
        raise Violation("ServerChannel.fileno() is not readable though a peer has gone", "it is: receive() says so")
    if (received := bench.take_message(server)) != (gone_peer, None):
        raise Violation(f"{received!r:.200} came", f"{(gone_peer, None)}")
    server.close(0.0)
    if not wait_for(channel.fileno(), bench.patience):
        raise Violation("Channel.fileno() is not readable though the engine core has gone", "it is: receive() raises")
    bench.take_end(channel)


@check("transport", "channels")
def an_engine_core_that_is_killed_is_seen(bench: ChannelBench) -> None:
    """When the engine core's process is killed by SIGKILL, a front end receives whole messages,
    then ConnectionError; and to open its address raises ConnectionError in time.
    """
    child = bench.child("engine_core", directory=str(bench.directory()), count=40, size=MEGABYTE)
    address = bench.report_of(child)
    channel = bench.open_at(address)
    channel.send([b"hello"])
    bench.report_of(child)  # all is sent, and no more of it taken here than what the transport buffers
    expect(bench.take_message(channel), message(0, MEGABYTE), "message 0 of another process")
    child.kill()
    number = 1
    try:
        while True:
            expect(
                bench.take_message(channel), message(number, MEGABYTE), f"message {number} of a process that was killed"
            )
            number += 1
    except ConnectionError:
        pass
    channel.send([b"too late"])
    expect_no_answer(bench, address, "the address of a process that was killed")


def expect_no_answer(bench: ChannelBench, address: Mapping[str, Any], what: str) -> None:
    """To open this address must fail in time."""
    timeout = min(0.3, bench.patience)
    began = time.monotonic()
    try:
        bench.call(
            f"open() of {what}, with a timeout of {timeout:g} s,", bench.transport.open, address, timeout
        ).close()
    except ConnectionError:
        return
    seconds = time.monotonic() - began
    raise Violation(f"open() of {what} succeeded after {seconds:.1f} s", "ConnectionError: nothing answers there")
