"""Checks: `receive` never waits, and `fileno` is readable when there is something to receive."""

import asyncio
import select
import selectors
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from enginecore.interfaces import Channel, ServerChannel
from enginecore_conformance.checks import Violation, check
from enginecore_conformance.transports.bench import ChannelBench, wait_for
from enginecore_conformance.transports.payloads import expect, numbered

READABLE = "fileno() is readable at the latest when receive() has something again after it returned None"


@check("transport", "channels")
def receive_never_waits(bench: ChannelBench) -> None:
    """`receive` returns None at once if there is nothing: before a front end has come, and before
    anything was sent.
    """
    server = bench.listen()
    for _ in range(3):
        _expect_nothing(server, "ServerChannel.receive() without a peer")
    channel, _ = bench.join(server)
    for _ in range(3):
        _expect_nothing(server, "ServerChannel.receive()")
        _expect_nothing(channel, "Channel.receive()")


def _expect_nothing(end: Any, what: str) -> None:
    if (item := end.receive()) is not None:
        raise Violation(f"{what} gave {item!r:.200} where nothing was sent", "None")


@check("transport", "channels")
def fileno_wakes_every_kind_of_waiter(bench: ChannelBench) -> None:
    """A message makes `fileno` readable, of both ends, to `select`, `poll`, `epoll` and an asyncio
    loop alike.
    """
    server, channel, peer = bench.pair()
    waiters: tuple[tuple[str, Callable[[int, float], bool]], ...] = (
        ("select", lambda fd, limit: bool(select.select([fd], [], [], limit)[0])),
        ("poll", wait_for),
        ("selectors.DefaultSelector", _wait_by_selector),
        ("asyncio", _wait_by_asyncio),
    )
    for name, wait in waiters:
        for what, end, send in (
            ("ServerChannel", server, partial(channel.send, [name.encode()])),
            ("Channel", channel, partial(server.send, peer, [name.encode()])),
        ):
            _expect_nothing(end, f"{what}.receive()")
            send()
            if not wait(end.fileno(), bench.patience):
                raise Violation(f"{name} waited {bench.patience:g} s on {what}.fileno()", READABLE)
            frames = bench.take_from(server, peer) if end is server else bench.take_message(channel)
            expect(frames, [name.encode()], f"the message that {name} waited for")


def _wait_by_selector(fileno: int, limit: float) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(fileno, selectors.EVENT_READ)
        return bool(selector.select(limit))


def _wait_by_asyncio(fileno: int, limit: float) -> bool:
    async def wait() -> bool:
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(fileno, readable.set)
        try:
            await asyncio.wait_for(readable.wait(), limit)
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(fileno)
        return True

    return asyncio.run(wait())


@check("transport", "channels")
def no_wakeup_is_lost(bench: ChannelBench) -> None:
    """A message that arrives between `receive() -> None` and the waiting on `fileno` wakes the
    waiter: 1,000 rounds of one to three messages between two threads.
    """
    server, channel, peer = bench.pair()
    asking = bench.start_call(_ask, bench, channel)
    while bytes((frames := bench.take_from(server, peer))[0]) != b"stop":
        server.send(peer, frames)
    bench.finish(asking, "the front end's side of the rounds")


def _ask(bench: ChannelBench, channel: Channel) -> None:
    try:
        for number in range(1000):
            for _ in range(1 + number % 3):
                channel.send(numbered("ask", number))
            for _ in range(1 + number % 3):
                expect(bench.take_message(channel), numbered("ask", number), f"the answer of round {number}")
    finally:
        channel.send([b"stop"])


@check("transport", "channels")
def fileno_stays_readable_until_nothing_is_left(bench: ChannelBench) -> None:
    """Waiting again, or sending meanwhile, does not take back that something has arrived."""
    server, channel, peer = bench.pair()
    other, other_peer = bench.join(server)
    one, meanwhile = [b"one"], [b"meanwhile"]
    for what, end, send, doing in (
        ("ServerChannel", server, partial(channel.send, one), partial(server.send, other_peer, meanwhile)),
        ("Channel", channel, partial(server.send, peer, one), partial(channel.send, meanwhile)),
    ):
        _expect_nothing(end, f"{what}.receive()")
        send()
        for turn in range(4):
            if turn == 2:
                doing()
            if not wait_for(end.fileno(), bench.patience):
                raise Violation(
                    f"{what}.fileno() is not readable any more although receive() was not called: after waiting twice, "
                    "or after sending",
                    READABLE,
                )
        if end is server:
            expect(bench.take_from(server, peer), one, "to the engine core")
        else:
            expect(bench.take_message(channel), one, "to the front end")
    expect(bench.take_from(server, peer), meanwhile, "to the engine core")
    expect(bench.take_message(other), meanwhile, "to another front end")


@check("transport", "channels")
def fileno_stays_the_same(bench: ChannelBench) -> None:
    """`fileno` gives the same number as long as an end is open: event loops register it once."""
    server = bench.listen()
    before = server.fileno()
    channel, peer = bench.join(server)
    own = channel.fileno()
    bench.join(server)
    server.send(peer, [b"some"])
    bench.take_message(channel)
    for what, first, now in (("ServerChannel", before, server.fileno()), ("Channel", own, channel.fileno())):
        if not isinstance(first, int) or first != now:
            raise Violation(f"{what}.fileno() was {first!r} and is {now!r}", "one number")


@check("transport", "channels")
def an_idle_end_is_quiet(bench: ChannelBench) -> None:
    """A waiter is not woken again and again for nothing: an idle engine costs no CPU time."""
    server, channel, _ = bench.pair()
    for what, end in (("ServerChannel", server), ("Channel", channel)):
        _expect_quiet(what, end)


def _expect_quiet(what: str, end: ServerChannel | Channel) -> None:
    began = time.monotonic()
    for _ in range(100):
        if not wait_for(end.fileno(), 0.03):
            return
        end.receive()
    raise Violation(
        f"{what}.fileno() was readable 100 times in {time.monotonic() - began:.3f} s while receive() gave None",
        "it is not readable for long while there is nothing to receive",
    )
