"""Checks: ends are opened and closed in bounded time, on any thread, and leave nothing behind."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from enginecore.interfaces import Channel, ServerChannel
from enginecore_conformance.checks import Violation, check
from enginecore_conformance.transports.bench import ChannelBench
from enginecore_conformance.transports.departures import expect_no_answer
from enginecore_conformance.transports.leftovers import Inventory, expect_nothing_more
from enginecore_conformance.transports.payloads import expect, message, numbered

MEGABYTE = 1 << 20


@check("transport", "channels")
def both_ends_have_all_members(bench: ChannelBench) -> None:
    """`listen` returns a ServerChannel and `open` a Channel, by subclass."""
    server = bench.listen()
    for interface, end in ((ServerChannel, server), (Channel, bench.open(server))):
        if not isinstance(end, interface):
            raise Violation(f"{type(end).__name__} is no {interface.__name__}", f"a subclass of {interface.__name__}")


@check("transport", "channels")
def the_address_is_plain_data(bench: ChannelBench) -> None:
    """`address` is a mapping that survives JSON, stays the same, and is all that `open` needs, also
    in the hands of another transport object.
    """
    server = bench.listen()
    address: Mapping[str, Any] = server.address
    try:
        again = json.loads(json.dumps(dict(address)))
    except (TypeError, ValueError) as error:
        raise Violation(f"{address!r} does not survive JSON: {error}", "plain data: texts, numbers, lists") from None
    if again != dict(address):
        raise Violation(f"{address!r} comes out of JSON as {again!r}", "the same: texts as keys, lists, no tuples")
    bench.greet(server, bench.open(server, address=again, transport=bench.make_transport()))
    if dict(server.address) != again:
        raise Violation(f"the address was {again!r} and is {server.address!r}", "it is fixed once listening")


@check("transport", "channels")
def many_can_come_at_once(bench: ChannelBench) -> None:
    """Once `listen` has returned, front ends can open, several at the same time and by one
    transport, and send.
    """
    server = bench.listen()
    opening = [bench.start_call(bench.open_at, server.address) for _ in range(9)]
    bench.attend(server, *opening)
    channels = [one.result() for one in opening]
    for number, channel in enumerate(channels):
        channel.send([b"I am", str(number).encode()])
    names = {}
    for _ in channels:
        peer, frames = bench.take_message(server)
        names[peer] = [bytes(frame) for frame in frames or ()]
    right = [[b"I am", str(number).encode()] for number in range(len(channels))]
    if sorted(names.values()) != right:
        raise Violation(f"of nine front ends these were heard: {names}", "each, under a name of its own")


@check("transport", "channels")
def a_closed_end_does_not_answer(bench: ChannelBench) -> None:
    """`open` raises ConnectionError within its timeout where no engine core listens any more."""
    server = bench.listen()
    address = dict(server.address)
    server.close(0.0)
    expect_no_answer(bench, address, "an engine core's end that is closed")


@check("transport", "channels")
def close_is_bounded(bench: ChannelBench) -> None:
    """`close` returns soon after its linger even if what was sent cannot leave: the front end does
    not read, or is gone. That of a front end returns soon whatever is unsent.
    """
    server, _, peer = bench.pair()
    gone, gone_peer = bench.join(server)
    for name in (peer, gone_peer):
        for number in range(20):
            server.send(name, message(number, MEGABYTE))
    gone.close()
    bench.call("ServerChannel.close(0.1) with 20 MB unsent", server.close, 0.1)
    server, channel, _ = bench.pair()
    for number in range(20):
        channel.send(message(number, MEGABYTE))
    bench.call("Channel.close() with 20 MB unsent", channel.close)


@check("transport", "channels")
def linger_delivers_the_last_words(bench: ChannelBench) -> None:
    """`close(linger)` gives what was sent that long to leave, and returns once it has left."""
    server, channel, peer = bench.pair()
    for number in range(20):
        server.send(peer, message(number, MEGABYTE))
    server.send(peer, [b"good-bye"])
    closing = bench.start_call(server.close, 10 * bench.patience)
    for number in range(20):
        expect(bench.take_message(channel), message(number, MEGABYTE), f"message {number} before a close that lingers")
    expect(bench.take_message(channel), [b"good-bye"], "the last message before a close that lingers")
    bench.take_end(channel)
    bench.finish(closing, "ServerChannel.close() whose last words have left")


@check("transport", "channels")
def closing_twice_does_nothing(bench: ChannelBench) -> None:
    """`close` may be called again, on either end, used or not."""
    unused = bench.listen()
    unused_channel = bench.open(unused)
    server, channel, _ = bench.pair()
    for _ in range(3):
        unused_channel.close()
        channel.close()
        unused.close(0.0)
        server.close(0.1)


@check("transport", "channels")
def nothing_is_left_after_close(bench: ChannelBench) -> None:
    """After both ends are closed there is no thread, no file descriptor and no file of theirs, also
    if messages were under way.
    """
    _use_and_close(bench)  # what is made once per process, say by an import, is no leak
    before = Inventory()
    folders = [_use_and_close(bench) for _ in range(4)]
    expect_nothing_more(bench, before)
    if files := [file.name for folder in folders for file in folder.iterdir()]:
        raise Violation(f"files are left in the directories of the engine core's ends: {', '.join(files)}", "none")


def _use_and_close(bench: ChannelBench) -> Path:
    """An engine core's end with three front ends, all used and closed; its directory."""
    directory = bench.directory()
    server = bench.listen(directory=directory)
    channels = []
    for _ in range(3):
        channel, peer = bench.join(server)
        server.send(peer, message("under way", 2 * MEGABYTE))
        channels.append(channel)
    for channel in channels:
        channel.send(message("under way", 2 * MEGABYTE))
    channels[0].close()
    server.close(0.0)
    for channel in channels[1:]:
        channel.close()
    return directory


@check("transport", "channels")
def those_who_left_leave_nothing(bench: ChannelBench) -> None:
    """A long-running engine core's end keeps no thread and no file descriptor of front ends that
    are gone.
    """
    server, _, _ = bench.pair()
    _come_and_go(bench, server)
    before = Inventory()
    for _ in range(10):
        _come_and_go(bench, server)
    expect_nothing_more(bench, before)


def _come_and_go(bench: ChannelBench, server: ServerChannel) -> None:
    channel, peer = bench.join(server)
    server.send(peer, message("unread", MEGABYTE))
    channel.close()
    if (received := bench.take_message(server)) != (peer, None):
        raise Violation(f"{received!r:.200} came", f"{(peer, None)}: it has closed its end")


@check("transport", "channels")
def ends_may_change_threads(bench: ChannelBench) -> None:
    """The engine core's end is made on one thread, receives on a second while it sends on a third,
    and is closed by the first. A front end's may be used by any thread, one at a time.
    """
    server = bench.call("listen() on another thread", bench.listen)
    channel, peer = bench.join(server)  # this thread receives
    for number in range(3):
        bench.call(
            "ServerChannel.send() on a thread that does not receive", server.send, peer, numbered("down", number)
        )
        down = bench.call("Channel.receive() on a thread of its own", bench.take_message, channel)
        expect(down, numbered("down", number), "received on another thread")
        bench.call("Channel.send() on a thread of its own", channel.send, numbered("up", number))
        expect(bench.take_from(server, peer), numbered("up", number), "sent on another thread")
    bench.call("Channel.close() on another thread", channel.close)
    bench.call("ServerChannel.close() on another thread", server.close, 0.0)


@check("transport", "channels")
def two_servers_stand_side_by_side(bench: ChannelBench) -> None:
    """Two engine cores in one process, made by one transport or by two, share nothing; the end of
    one is none of the other's affair.
    """
    servers = [bench.listen(), bench.listen(), bench.listen(transport=bench.make_transport())]
    lines = [(server, bench.join(server)) for server in servers]
    for number, (server, front_end) in enumerate(lines):
        server.send(front_end.peer, numbered("down", number))
        front_end.channel.send(numbered("up", number))
    for number, (server, front_end) in enumerate(lines):
        up, down = bench.take_from(server, front_end.peer), bench.take_message(front_end.channel)
        expect(up, numbered("up", number), f"to engine core {number} of three")
        expect(down, numbered("down", number), f"to the front end of engine core {number} of three")
    servers[0].close(0.0)
    bench.take_end(lines[0][1].channel)
    for server, front_end in lines[1:]:
        _expect_talk(bench, server, *front_end)


def _expect_talk(bench: ChannelBench, server: ServerChannel, channel: Channel, peer: bytes) -> None:
    server.send(peer, [b"go on"])
    expect(bench.take_message(channel), [b"go on"], "after the end of another engine core in this process")
    channel.send([b"I do"])
    expect(bench.take_from(server, peer), [b"I do"], "after the end of another engine core in this process")
