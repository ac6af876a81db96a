"""Stop strings, matched character by character as text streams in: no text is looked at twice.

An automaton after Aho and Corasick, "Efficient string matching" (CACM 18/6, 1975). Its state is the longest end of
the text that begins some stop string, which is also exactly what must be held back. What matches therefore depends on
the text alone, never on how it was cut into tokens.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Scan(NamedTuple):
    """Where a scan ended.

    Attributes:
        state: To go on from.
        end: Characters read; the last of them completed `stop`, if there is one.
        stop: The stop string that was completed.
    """

    state: int
    end: int
    stop: str | None


class StopStringMatcher:
    """Finds the first completed of several stop strings; of those completed by one character, the longest.

    Immutable: any number of requests share one, each with a state of its own, which starts at `START`.
    """

    START = 0

    def __init__(self, stops: Sequence[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._stop: list[str | None] = [None]
        for stop in stops:
            self._insert(stop)
        self._fail = [self.START] * len(self._next)
        self._link()
        self._first_characters = frozenset(self._next[self.START])

    def _insert(self, stop: str) -> None:
        state = self.START
        for character in stop:
            following = self._next[state].get(character)
            if following is None:
                following = len(self._next)
                self._next[state][character] = following
                self._next.append({})
                self._depth.append(self._depth[state] + 1)
                self._stop.append(None)
            state = following
        self._stop[state] = stop

    def _link(self) -> None:
        """Breadth first: a state's fallback, the longest shorter end that begins a stop string, is linked before it."""
        level = list(self._next[self.START].values())
        while level:
            below: list[int] = []
            for state in level:
                for character, following in self._next[state].items():
                    self._fail[following] = self._advance(self._fail[state], character)
                    below.append(following)
                if self._stop[state] is None:
                    self._stop[state] = self._stop[self._fail[state]]
            level = below

    def _advance(self, state: int, character: str) -> int:
        while (following := self._next[state].get(character)) is None and state != self.START:
            state = self._fail[state]
        return self.START if following is None else following

    def find(self, state: int, text: str) -> Scan:
        """Read `text` up to the first character that completes a stop string."""
        if state == self.START and self._first_characters.isdisjoint(text):
            return Scan(state, len(text), None)
        for end, character in enumerate(text, 1):
            state = self._advance(state, character)
            if (stop := self._stop[state]) is not None:
                return Scan(state, end, stop)
        return Scan(state, len(text), None)

    def pass_over(self, state: int, text: str) -> Scan:
        """Read all of `text`; what is completed within it does not count, what only begins in it may still."""
        for character in text:
            state = self._advance(state, character)
        while state != self.START and not self._next[state]:
            state = self._fail[state]
        return Scan(state, len(text), None)

    def num_held(self, state: int) -> int:
        """Characters at the end of the text that may turn out to begin a stop string."""
        return self._depth[state]
