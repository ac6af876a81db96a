"""Messages whose every byte is known, and descriptions of what differs in one."""

from collections.abc import Iterator, Sequence
from hashlib import blake2b

from enginecore.interfaces import Frame
from enginecore_conformance.checks import Violation

_PERIOD = 61  # a prime: no shift by a buffer's size goes unnoticed


def content(name: object, size: int) -> bytes:
    """`size` bytes that differ for every name."""
    piece = blake2b(repr(name).encode(), digest_size=_PERIOD).digest()
    return (piece * (size // _PERIOD + 1))[:size]


def message(name: object, *sizes: int) -> list[bytes]:
    """A message with frames of these sizes."""
    return [content((name, number), size) for number, size in enumerate(sizes)]


def difference(seen: Sequence[Frame], right: Sequence[Frame]) -> str | None:
    """Difference of a message from what was sent, in a sentence; None if there is none."""
    if len(seen) != len(right):
        return f"a message of {len(seen)} frames arrived where {len(right)} were sent"
    for number, (one, other) in enumerate(zip(seen, right, strict=True)):
        got, sent = bytes(one), bytes(other)
        if len(got) != len(sent):
            return f"frame {number} of {len(right)} has {len(got)} bytes; it was sent with {len(sent)}"
        if got != sent:
            at = next(i for i, (a, b) in enumerate(zip(got, sent, strict=True)) if a != b)
            return f"frame {number} of {len(right)} ({len(sent)} bytes) differs from byte {at} on"
    return None


def expect(seen: Sequence[Frame], right: Sequence[Frame], what: str) -> None:
    """A message must be as it was sent; `what` names it."""
    if (how := difference(seen, right)) is not None:
        raise Violation(f"{what}: {how}", "a message arrives as it was sent: same frames, same bytes")


def numbered(tag: str, number: int) -> list[bytes]:
    """A small message that says which one it is; its length varies."""
    return [f"{tag}:{number}".encode(), content(tag, number % 97)]


class Numbered:
    """Expects the numbered messages of a tag, in order and once."""

    def __init__(self, tag: str) -> None:
        self.count = 0
        self._tag = tag

    def take(self, frames: Sequence[Frame], what: str) -> None:
        """The next one must be this."""
        wanted = numbered(self._tag, self.count)
        if difference(frames, wanted) is not None:
            got = bytes(frames[0])[:40] if frames else b"nothing"
            raise Violation(
                f"{what}: {got!r} came where {wanted[0]!r} was due",
                "messages of one peer arrive in order, each once, none changed",
            )
        self.count += 1


def batches(count: int, size: int) -> Iterator[range]:
    """The numbers below `count`, so many at a time."""
    for start in range(0, count, size):
        yield range(start, min(start + size, count))
