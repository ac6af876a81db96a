"""A radix tree over blocks of tokens (RadixAttention, SGLang, NeurIPS 2024)."""

from array import array
from collections.abc import Iterator, Sequence

from enginecore.errors import InvariantError
from enginecore.kv_cache import Content, encode_identity
from enginecore.request import Request


class TokenKeys:
    """Keys that are the tokens themselves, so that no two contents can be mistaken for one another.

    The first key of a prefix begins with the request's cache identity: salts and adapters have trees of their own.

    Args:
        block_size: Tokens per block.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size

    def extend(self, request: Request, num_blocks: int) -> None:
        keys, size = request.block_hashes, self._block_size
        if len(keys) >= num_blocks:
            return
        if num_blocks * size > request.num_tokens:
            raise InvariantError(
                f"request {request.request_id!r} has {request.num_tokens} known tokens: "
                f"{num_blocks} blocks of {size} tokens have no keys yet"
            )
        # fixed width: ids of any size or sign never run into one another
        tokens = array("q", request.token_ids[len(keys) * size : num_blocks * size]).tobytes()
        width = 8 * size
        new = [tokens[start : start + width] for start in range(0, len(tokens), width)]
        if not keys:
            new[0] = encode_identity(request.cache_identity) + new[0]
        keys += new


class _Node:
    """A span: contents that follow one another, without a branch between them.

    Attributes:
        parent: The node before it; None: it is the root.
        keys: Keys of its contents, in order of position.
        contents: Contents of the node; only the root has none.
        children: Nodes behind its last content, by their first key.
    """

    __slots__ = ("children", "contents", "keys", "parent")

    def __init__(self, parent: "_Node | None", contents: list[Content]) -> None:
        self.parent = parent
        self.contents = contents
        self.keys = [content.key for content in contents]
        self.children: dict[bytes, _Node] = {}
        for content in contents:
            content.place = self

    def append(self, content: Content) -> None:
        """Append a content behind the last one; there are no children."""
        self.keys.append(content.key)
        self.contents.append(content)
        content.place = self

    def num_common(self, keys: Sequence[bytes], start: int, end: int) -> int:
        """How many of its keys are those from `start` to `end`, from the first on."""
        others = keys[start : min(start + len(self.keys), end)]
        if others == self.keys[: len(others)]:
            return len(others)
        return next(n for n, (one, other) in enumerate(zip(self.keys, others, strict=False)) if one != other)


class RadixTree:
    """Fills `ContentIndex`. A look-up compares spans of tokens; a span is split where contents diverge.

    Nodes that are left with one child are not joined again: what branched once is likely to do so again.
    """

    def __init__(self) -> None:
        self._root = _Node(None, [])

    def find(self, keys: Sequence[bytes], limit: int) -> list[Content]:
        found: list[Content] = []
        for node, num_common in self._walk(keys, limit):
            found += node.contents[:num_common]
        return found

    def count(self, keys: Sequence[bytes], limit: int) -> int:
        return sum(num_common for _, num_common in self._walk(keys, limit))

    def _walk(self, keys: Sequence[bytes], limit: int) -> Iterator[tuple[_Node, int]]:
        """The nodes along these keys, with how much of each agrees."""
        node, start = self._root, 0
        while start < limit:
            child = node.children.get(keys[start])
            if child is None:
                return
            num_common = child.num_common(keys, start, limit)
            yield child, num_common
            if num_common < len(child.keys):
                return
            node, start = child, start + num_common

    def add(self, content: Content) -> Content:
        parent = content.parent
        node = self._root if parent is None else self._node(parent)
        offset = 0 if parent is None else self._offset(parent) + 1
        if offset < len(node.keys):
            if node.keys[offset] == content.key:
                return node.contents[offset]
            self._split(node, offset)
        elif node.children or node is self._root:
            if known := node.children.get(content.key):
                return known.contents[0]
        else:
            node.append(content)
            return content
        node.children[content.key] = _Node(node, [content])
        return content

    def remove(self, content: Content) -> None:
        node = self._node(content)
        if node.contents[-1] is not content or node.children:
            raise InvariantError(f"{content!r} cannot be forgotten before what is behind it")
        node.contents.pop()
        node.keys.pop()
        if not node.keys and node.parent is not None:
            del node.parent.children[content.key]

    def clear(self) -> None:
        self._root = _Node(None, [])

    def __iter__(self) -> Iterator[Content]:
        for node in self._nodes():
            yield from node.contents

    def check_invariants(self) -> None:
        for node in self._nodes():
            if node.keys != [content.key for content in node.contents] or (node.parent and not node.keys):
                raise InvariantError(f"a node of the radix tree has {len(node.keys)} keys for {node.contents}")
            before = node.parent.contents[-1] if node.parent and node.parent.contents else None
            for content in node.contents:
                if content.place is not node or content.parent is not before:
                    raise InvariantError(f"{content!r} stands in the wrong place of the radix tree")
                before = content
            for key, child in node.children.items():
                if child.parent is not node or child.keys[:1] != [key]:
                    raise InvariantError(f"a child of {node.contents} in the radix tree is not its child")

    def _nodes(self) -> Iterator[_Node]:
        nodes = [self._root]
        while nodes:
            node = nodes.pop()
            nodes += node.children.values()
            yield node

    @staticmethod
    def _node(content: Content) -> _Node:
        node: _Node = content.place
        return node

    @staticmethod
    def _offset(content: Content) -> int:
        """Where it stands in its node."""
        first: Content = content.place.contents[0]
        return content.position - first.position

    @staticmethod
    def _split(node: _Node, offset: int) -> None:
        """The contents from `offset` on become a node of their own."""
        tail = _Node(node, node.contents[offset:])
        tail.children = node.children
        for child in tail.children.values():
            child.parent = tail
        del node.contents[offset:], node.keys[offset:]
        node.children = {tail.keys[0]: tail}
