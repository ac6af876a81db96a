"""Which cached block is given up first."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Protocol


class EvictionOrder(Protocol):
    """Holds the free blocks whose content can still be hit, and says which of them to give up.

    A block enters when its last reference goes and leaves when it is hit or evicted. Within a prefix, children enter
    before their parents, at every use. Promise: never give up a block while a child of it is held. "Least recently
    entered first" keeps it, and so does any other key that is never greater for a child than for its parent, with
    ties in order of entry.
    """

    def add(self, block: int) -> None:
        """It has become free. It is not held yet."""
        ...

    def remove(self, block: int) -> None:
        """It is referenced again, or about to be added anew. It is held."""
        ...

    def pop(self) -> int:
        """Give up one block: it is not held any more. At least one is held."""
        ...

    def __len__(self) -> int:
        """Blocks held."""
        ...

    def __iter__(self) -> Iterator[int]:
        """The blocks held, in any order."""
        ...


class Lru:
    """Least recently used first."""

    def __init__(self) -> None:
        # not a dict: finding its first key gets slower with every key that was removed before
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def add(self, block: int) -> None:
        self._blocks[block] = None

    def remove(self, block: int) -> None:
        del self._blocks[block]

    def pop(self) -> int:
        return self._blocks.popitem(last=False)[0]

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[int]:
        return iter(self._blocks)
