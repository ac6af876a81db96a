"""Eviction orders by a key."""

import itertools
from abc import abstractmethod
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heappushpop
from typing import Any

from enginecore.interfaces import CachedContent, EvictionOrder

_SLACK = 64

_Entry = tuple[Any, int, CachedContent]


class KeyedOrder(EvictionOrder):
    """Smallest key first, equal keys as they were added. Subclass it; only `key` is required.

    A heap. A removed content stays in it until it comes up or removed ones outnumber those held, so
    every call takes logarithmic time on average. The last content added stays outside the heap: it
    is mostly the parent of the one that was just evicted, and goes next.
    """

    # an order with a lifetime sets it from its settings
    lifetime: float | None = None  # pyright: ignore[reportIncompatibleMethodOverride]

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._last: _Entry | None = None
        self._entries: dict[CachedContent, int] = {}  # what is held, by the number of its entry in the heap
        self._numbers = itertools.count()

    @abstractmethod
    def key(self, content: CachedContent) -> Any:
        """Anything that orders. Asked each time that the content becomes evictable."""

    def add(self, content: CachedContent) -> None:
        if self._last is not None:
            heappush(self._heap, self._last)
        number = self._entries[content] = next(self._numbers)
        self._last = (self.key(content), number, content)

    def remove(self, content: CachedContent) -> None:
        del self._entries[content]
        if len(self._heap) > 2 * len(self._entries) + _SLACK:
            self._heap = [entry for entry in self._heap if self._entries.get(entry[2]) == entry[1]]
            heapify(self._heap)

    def pop(self) -> CachedContent:
        while True:
            _, number, content = heappushpop(self._heap, self._last) if self._last else heappop(self._heap)
            self._last = None
            if self._entries.get(content) == number:
                del self._entries[content]
                return content

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[CachedContent]:
        return iter(self._entries)


class Lru(KeyedOrder):
    """Least recently used first."""

    def key(self, content: CachedContent) -> int:
        return content.last_use
