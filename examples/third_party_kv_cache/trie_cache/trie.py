"""What the prefix cache holds: a tree in which each step down is one block of tokens."""

from collections.abc import Iterator
from typing import Any

from enginecore.request import Request

Siblings = dict[tuple[Any, ...], "Node"]


class Node:
    """The content of one block. Fills `enginecore.interfaces.CachedContent`, which says what the fields mean.

    Attributes:
        siblings: Where it stands in the tree.
        key: Its tokens; for the first block of a prefix with the cache identity before them.
        parent: The block before it; None for the first.
        children: What is known behind it.
    """

    __slots__ = (
        "block_id", "children", "key", "last_use", "last_used_at", "num_hits", "parent", "position", "published",
        "siblings",
    )  # fmt: skip

    def __init__(self, siblings: Siblings, key: tuple[Any, ...], parent: "Node | None", published: int) -> None:
        self.siblings = siblings
        self.key = key
        self.parent = parent
        self.published = published
        self.block_id = -1
        self.position: int = 0 if parent is None else parent.position + 1
        self.children: Siblings = {}
        self.num_hits = self.last_use = 0
        self.last_used_at = 0.0


class Trie:
    """All nodes. Requests of different salts or adapters never meet: the first key holds the cache identity."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._first: Siblings = {}
        self._num_published = 0

    def find(self, request: Request, num_blocks: int) -> list[Node]:
        """The longest known prefix of its first blocks."""
        found: list[Node] = []
        siblings = self._first
        for position in range(num_blocks):
            node = siblings.get(self._key(request, position))
            if node is None:
                break
            found.append(node)
            siblings = node.children
        return found

    def add(self, request: Request, parent: Node | None) -> Node:
        """The node with this request's tokens behind `parent`; a new one has no block yet."""
        siblings, position = (self._first, 0) if parent is None else (parent.children, parent.position + 1)
        key = self._key(request, position)
        node = siblings.get(key)
        if node is None:
            node = siblings[key] = Node(siblings, key, parent, self._num_published)
            self._num_published += 1
        return node

    def remove(self, node: Node) -> None:
        """Forget one without children."""
        del node.siblings[node.key]

    def __iter__(self) -> Iterator[Node]:
        left = list(self._first.values())
        while left:
            node = left.pop()
            left += node.children.values()
            yield node

    def _key(self, request: Request, position: int) -> tuple[Any, ...]:
        start = position * self._block_size
        tokens = tuple(request.token_ids[start : start + self._block_size])
        return tokens if position else (request.cache_identity, *tokens)
