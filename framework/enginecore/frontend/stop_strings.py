"""Stop strings, found in text as it streams in.

What matches depends on the text alone, never on how it was cut into tokens: the end of the text
that may begin a stop string is held back, and searched again together with what follows.

`str.find` is enough. With up to four stop strings a token costs 0.5 to 2.5 us, as much as with an
automaton after Aho and Corasick; with 64 of 1,000 characters each 0.15 ms against 0.01 ms, but to
build that automaton takes 0.3 s (benchmarks/stop_strings.py).
"""

from collections.abc import Sequence
from typing import NamedTuple


class Scan(NamedTuple):
    """The result of a search.

    Attributes:
        held: The end of the text that may turn out to begin a stop string; empty if one was found.
        end: Characters read of the new text; the last of them completed `stop`, if there is one.
        stop: The stop string that was found.
    """

    held: str
    end: int
    stop: str | None


class StopStringMatcher:
    """Finds the stop string that is completed first; of several completed at once, the longest."""

    __slots__ = ("_first_characters", "_most_held", "_stops")

    def __init__(self, stops: Sequence[str]) -> None:
        """`stops`: at least one; none is empty."""
        self._stops = tuple(stops)
        self._first_characters = frozenset(stop[0] for stop in stops)
        self._most_held = max(map(len, stops)) - 1

    def find(self, held: str, text: str) -> Scan:
        """Search text that follows what was held back so far, up to the first character that
        completes a stop string.
        """
        if not held and self._first_characters.isdisjoint(text):
            return Scan("", len(text), None)
        known = held + text
        found: list[tuple[int, int, str]] = []
        for stop in self._stops:
            start = known.find(stop, max(len(held) - len(stop) + 1, 0))  # so that it ends in the new text
            if start >= 0:
                found.append((start + len(stop), -len(stop), stop))
        if found:
            end, _, stop = min(found)
            return Scan("", end - len(held), stop)
        return Scan(self._possible_beginning(known), len(text), None)

    def pass_over(self, held: str, text: str) -> Scan:
        """Read all of `text`; what is completed within it does not count, what only begins in it
        may still.
        """
        return Scan(self._possible_beginning(held + text), len(text), None)

    def _possible_beginning(self, text: str) -> str:
        """The longest end of `text` that a stop string begins with and goes on from."""
        for start in range(max(len(text) - self._most_held, 0), len(text)):
            if text[start] in self._first_characters:
                tail = text[start:]
                if any(len(stop) > len(tail) and stop.startswith(tail) for stop in self._stops):
                    return tail
        return ""
