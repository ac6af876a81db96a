"""Checks: `send` does not wait, disturbs no peer, and refuses what is too large."""

import re
from collections.abc import Callable, Sequence
from functools import partial

from enginecore.errors import InvalidRequestError
from enginecore.interfaces import Frame
from enginecore_conformance.checks import Violation, check
from enginecore_conformance.transports.bench import ChannelBench
from enginecore_conformance.transports.payloads import expect, message, numbered

MEGABYTE = 1 << 20
BACKLOG = 50
TOO_LARGE = 1 << 30
"""Bytes that no transport need carry in one message. The limit is a setting; a check sends more
than this.
"""


@check("transport", "channels")
def send_waits_for_no_reader(bench: ChannelBench) -> None:
    """`send` returns without waiting for the other end to read: 50 MB to a front end that does not
    read, while another one is served; all of it is there once it reads.
    """
    server, slow, slow_peer = bench.pair()
    quick, quick_peer = bench.join(server)
    for number in range(BACKLOG):
        server.send(slow_peer, message(number, MEGABYTE))
        server.send(quick_peer, numbered("quick", number))
        expect(bench.take_message(quick), numbered("quick", number), "to a front end beside one that does not read")
        quick.send(numbered("answer", number))
        expect(bench.take_from(server, quick_peer), numbered("answer", number), "from a front end beside that one")
    for number in range(BACKLOG):
        expect(bench.take_message(slow), message(number, MEGABYTE), f"message {number} of those that waited")


@check("transport", "channels")
def a_front_end_waits_for_no_reader(bench: ChannelBench) -> None:
    """`Channel.send` returns without waiting for the engine core to read: 50 MB; all of it is there
    once it reads.
    """
    server, channel, peer = bench.pair()
    for number in range(BACKLOG):
        channel.send(message(number, MEGABYTE))
    for number in range(BACKLOG):
        expect(bench.take_from(server, peer), message(number, MEGABYTE), f"message {number} of those that waited")


@check("transport", "channels")
def what_was_sent_leaves_by_itself(bench: ChannelBench) -> None:
    """A message leaves although its sender calls nothing more: neither `receive` nor `send`."""
    server, channel, peer = bench.pair()
    large = message("large", 8 * MEGABYTE, 10)
    channel.send(large)
    expect(bench.take_from(server, peer), large, "to the engine core")
    server.send(peer, large)
    expect(bench.take_message(channel), large, "to the front end")


@check("transport", "channels")
def sending_to_a_peer_that_is_gone_does_nothing(bench: ChannelBench) -> None:
    """A message to a peer that is gone, known to be gone or never there does nothing: no exception,
    no word of it to others, who go on.
    """
    server, channel, peer = bench.pair()
    other, other_peer = bench.join(server)
    backlog = message("backlog", 4 * MEGABYTE)
    server.send(peer, backlog)
    channel.close()
    for number in range(20):  # its end may not have been noticed yet
        server.send(peer, numbered("gone", number))
        server.send(other_peer, numbered("other", number))
    if (gone := bench.take_message(server)) != (peer, None):
        raise Violation(f"{gone!r:.200} came", f"{(peer, None)}: it has closed its end")
    for stranger in (peer, b"unknown", b"", b"\0\0\0\0\0"):
        server.send(stranger, numbered("gone", 0))
        server.send(stranger, backlog)
    for number in range(20):
        expect(bench.take_message(other), numbered("other", number), "to the front end that is still there")
    other.send([b"still here"])
    expect(bench.take_from(server, other_peer), [b"still here"], "from the front end that is still there")
    bench.expect_silence(server)


@check("transport", "channels")
def sending_after_the_end_of_the_engine_core_does_nothing(bench: ChannelBench) -> None:
    """`Channel.send` does nothing once the engine core's end is gone, noticed or not."""
    server, channel, _ = bench.pair()
    server.close(0.0)
    for number in range(20):
        channel.send(numbered("late", number))
    channel.send(message("late", 4 * MEGABYTE))
    bench.take_end(channel)
    channel.send(numbered("late", 0))


@check("transport", "channels")
def what_is_too_large_is_refused(bench: ChannelBench) -> None:
    """A message above the limit raises InvalidRequestError at its sender and says the limit.
    Nothing of it arrives, and messages before and after it do. Checked with a message of 1 GB: if
    the limit is higher, lower it for the check.
    """
    server, channel, peer = bench.pair()
    piece = memoryview(bytes(MEGABYTE))
    huge = [piece] * (TOO_LARGE // MEGABYTE + 1)
    down: Callable[[Sequence[Frame]], None] = partial(server.send, peer)
    for what, send in (("ServerChannel", down), ("Channel", channel.send)):
        send([b"before"])
        try:
            send(huge)
        except InvalidRequestError as error:
            _expect_limit(str(error), what)
        else:
            raise Violation(
                f"{what}.send() took a message of {len(huge) * MEGABYTE} bytes",
                "InvalidRequestError: it is larger than the limit, which is a setting",
            )
        send([b"after"])
    for text in (b"before", b"after"):
        expect(bench.take_message(channel), [text], "to the front end, around the message that was refused")
        expect(bench.take_from(server, peer), [text], "to the engine core, around the message that was refused")


def _expect_limit(text: str, what: str) -> None:
    numbers = [int(number.replace(",", "").replace("_", "")) for number in re.findall(r"\d[\d,_]*", text)]
    if not any(0 < number <= TOO_LARGE for number in numbers):
        raise Violation(f"{what}.send() says {text!r}", "the text says the limit, as a number")
