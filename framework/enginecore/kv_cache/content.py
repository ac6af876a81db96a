"""Contents of published blocks, and the index that finds them."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from enginecore.errors import InvariantError


class Content:
    """Fills `CachedContent`. One per content, whichever blocks hold it.

    Attributes:
        block_id: The block that is hit.
        key: Key in the index, unique among the children of a parent.
        parent: The content before this one in its prefix; None for the first.
        place: Where this content stands in the index; owned by the index.
        position: Number of contents before this one in its prefix.
        num_children: Number of contents whose parent is this one.
        published: Serial number of the publication.
        num_hits: How often this content was found and shared.
        last_use: Serial number of the use that ended last; unset during the first use.
        last_used_at: When that use ended, in seconds on the engine's clock; unset likewise.
    """

    last_use: int
    last_used_at: float
    place: Any

    __slots__ = (
        "block_id", "key", "last_use", "last_used_at", "num_children", "num_hits", "parent", "place", "position",
        "published",
    )  # fmt: skip

    def __init__(self, block_id: int, key: bytes, parent: "Content | None", published: int) -> None:
        self.block_id = block_id
        self.key = key
        self.parent = parent
        self.position: int = 0 if parent is None else parent.position + 1
        self.published = published
        self.num_children = self.num_hits = 0

    def __repr__(self) -> str:
        return f"Content(block {self.block_id} at position {self.position})"


class ContentIndex(Protocol):
    """Finds contents by their keys. A content is known only as long as its parent is."""

    def find(self, keys: Sequence[bytes], limit: int) -> list[Content]:
        """The longest known prefix of the first `limit` keys."""
        ...

    def count(self, keys: Sequence[bytes], limit: int) -> int:
        """Number of contents that `find` would return."""
        ...

    def add(self, content: Content) -> Content:
        """Add a content behind its parent; returns it, or the one that has its key there."""
        ...

    def remove(self, content: Content) -> None:
        """Forget a content that has no children."""
        ...

    def clear(self) -> None:
        """Forget all contents."""
        ...

    def __iter__(self) -> Iterator[Content]:
        """All contents, in any order."""
        ...

    def check_invariants(self) -> None:
        """Verify its own structure.

        Raises:
            InvariantError: what does not hold.
        """
        ...


class HashIndex:
    """A map from chained hashes: equal keys mean equal prefixes, so that one look-up per block
    finds it anywhere.
    """

    def __init__(self) -> None:
        self._contents: dict[bytes, Content] = {}

    def find(self, keys: Sequence[bytes], limit: int) -> list[Content]:
        found = []
        for key in keys[:limit]:
            content = self._contents.get(key)
            if content is None:
                break
            found.append(content)
        return found

    def count(self, keys: Sequence[bytes], limit: int) -> int:
        """Number of leading keys that are known, by bisection, since the known ones come first.

        A scheduler may ask this of every waiting request in every step, and what was found before
        is out of date as soon as any block is published or evicted.
        """
        low, high = 0, limit
        while low < high:
            middle = (low + high) // 2
            if keys[middle] in self._contents:
                low = middle + 1
            else:
                high = middle
        return low

    def add(self, content: Content) -> Content:
        return self._contents.setdefault(content.key, content)

    def remove(self, content: Content) -> None:
        del self._contents[content.key]

    def clear(self) -> None:
        self._contents.clear()

    def __iter__(self) -> Iterator[Content]:
        return iter(self._contents.values())

    def check_invariants(self) -> None:
        for key, content in self._contents.items():
            if content.key != key:
                raise InvariantError(f"{content!r} is listed under a hash that is not its own")
