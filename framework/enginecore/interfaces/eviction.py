"""EvictionOrder: which cached block is given up first."""

from collections.abc import Iterator
from typing import Protocol


class CachedContent(Protocol):
    """What one block of the prefix cache holds, as an order of eviction sees it.

    Content outlives the block that holds it: of several blocks with the same content, another may take over.
    """

    @property
    def block_id(self) -> int:
        """The block that holds it."""
        ...

    @property
    def position(self) -> int:
        """Blocks before it in its prefix."""
        ...

    @property
    def published(self) -> int:
        """Its number in order of publication, unique; a parent's is smaller than its children's."""
        ...

    @property
    def num_hits(self) -> int:
        """How many requests have found it and shared it."""
        ...

    @property
    def last_use(self) -> int:
        """Number of the use that ended last: the greater, the later."""
        ...

    @property
    def last_used_at(self) -> float:
        """When that was, in seconds on the engine's clock."""
        ...


class EvictionOrder(Protocol):
    """Holds what may be evicted, and says what goes first.

    That is all cached content which nobody uses and on which no other cached content hangs: whichever goes first, no
    prefix is torn, for a parent is added when its last child has gone. What an order sees of a content does not change
    while it holds it, so that a key can be made once, in `add`.
    """

    @property
    def lifetime(self) -> float | None:
        """Seconds without use after which content is forgotten, which then is found no more; None: never.

        An order with a lifetime gives up first what was used least recently.
        """
        ...

    def add(self, content: CachedContent, /) -> None:
        """It may be evicted from now on. It is not held yet."""
        ...

    def remove(self, content: CachedContent, /) -> None:
        """It is used again. It is held."""
        ...

    def pop(self) -> CachedContent:
        """Give up one: it is not held any more. At least one is held."""
        ...

    def __len__(self) -> int:
        """How many are held."""
        ...

    def __iter__(self) -> Iterator[CachedContent]:
        """Those held, in any order."""
        ...
