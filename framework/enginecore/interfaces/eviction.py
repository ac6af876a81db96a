"""EvictionOrder: which cached block is given up first."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Protocol


class CachedContent(Protocol):
    """Content of one block of the prefix cache, as an eviction order sees it. Read-only.

    Content outlives the block that holds it: of several blocks with the same content, another may
    take over.
    """

    @property
    def block_id(self) -> int:
        """The block that holds this content."""
        ...

    @property
    def position(self) -> int:
        """Number of blocks before this one in its prefix."""
        ...

    @property
    def published(self) -> int:
        """Serial number of the publication, unique; a parent's is smaller than its children's."""
        ...

    @property
    def num_hits(self) -> int:
        """How many requests have found and shared this content."""
        ...

    @property
    def last_use(self) -> int:
        """Serial number of the use that ended last: the greater, the later."""
        ...

    @property
    def last_used_at(self) -> float:
        """When the last use ended, in seconds on the engine's clock."""
        ...


class EvictionOrder(ABC):
    """Holds the cached contents that may be evicted, and says which goes first. Subclass it.

    It holds all contents that no request uses and on which no other cached content depends:
    whichever goes first, no prefix is torn, since a parent is added when its last child has gone.
    What an order sees of a content does not change while it is held, so a key can be computed once,
    in `add`.
    """

    __slots__ = ()

    @property
    def lifetime(self) -> float | None:
        """Seconds without use after which content is forgotten and no longer found. Default: None,
        never.

        An order with a lifetime gives up first what was used least recently.
        """
        return None

    @abstractmethod
    def add(self, content: CachedContent, /) -> None:
        """Hold `content`: it may be evicted from now on. It is not held yet."""

    @abstractmethod
    def remove(self, content: CachedContent, /) -> None:
        """Hold `content` no longer: a request uses it again. It is held."""

    @abstractmethod
    def pop(self) -> CachedContent:
        """Give up one content and hold it no longer. At least one is held."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of contents held."""

    @abstractmethod
    def __iter__(self) -> Iterator[CachedContent]:
        """The contents held, in any order."""
