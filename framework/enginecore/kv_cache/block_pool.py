"""The pool of KV cache blocks: references, published contents and free blocks."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

from enginecore.clock import Clock
from enginecore.errors import InvariantError
from enginecore.interfaces import CachedContent, EvictionOrder
from enginecore.kv_cache.content import Content, ContentIndex


class BlockPool:
    """Counts references, publishes content by keys, and gives out free blocks.

    A block is referenced or free. A published block has a content that the index knows; while it
    has no reference, it is *cached*. Free blocks without content are given out first.

    **A content stays as long as its children do**, so that every cached block can be found: only
    contents without children are offered to the eviction order. An owner that references a content
    references its parent too.

    Two requests may compute the same content. The block that was published first is hit; the others
    are copies. When the last reference to the first goes, the oldest copy takes over, and the block
    has no content; when the last reference to a copy goes, it has no content either. One that is
    published while the first is cached takes over at once. So only what is referenced has copies.

    Args:
        num_blocks: Blocks in the pool; ids are 0 to num_blocks - 1.
        index: Finds contents; empty, and the pool's own from here on.
        order: Order of eviction; likewise.
        clock: Says when a use has ended.
    """

    def __init__(self, num_blocks: int, index: ContentIndex, order: EvictionOrder, clock: Clock) -> None:
        self.num_blocks = num_blocks
        self.num_cached = 0
        self._index = index
        self._order = order
        self._lifetime = order.lifetime
        self._clock = clock
        self._num_references = [0] * num_blocks
        self._content: list[Content | None] = [None] * num_blocks  # by block; copies have it too
        self._copies: dict[Content, list[int]] = {}  # in order of publication
        self._empty = list(range(num_blocks - 1, -1, -1))  # free, without content; a stack
        self._publications = itertools.count()
        self._num_uses = 0

    @property
    def num_free(self) -> int:
        """Blocks without a reference."""
        return len(self._empty) + self.num_cached

    # -- lookups ---------------------------------------------------------------------------------------------------

    def find_prefix(self, keys: Sequence[bytes], limit: int) -> list[int]:
        """The blocks that hold the longest known prefix of the first `limit` keys."""
        return [content.block_id for content in self._find(keys, limit)]

    def count_prefix(self, keys: Sequence[bytes], limit: int) -> int:
        """How many blocks `find_prefix` would find."""
        return self._index.count(keys, limit) if self._lifetime is None else len(self._find(keys, limit))

    def _find(self, keys: Sequence[bytes], limit: int) -> list[Content]:
        found = self._index.find(keys, limit)
        if self._lifetime is not None:
            now = self._clock.now()
            while found and self._is_expired(found[-1], now):  # a parent was used no earlier than its children
                found.pop()
        return found

    def holds(self, blocks: Sequence[int], keys: Sequence[bytes]) -> bool:
        """Whether these blocks hold the prefix of these keys, as published."""
        return [self._content[block] for block in blocks] == self._index.find(keys, len(keys))

    def count_references(self, blocks: Sequence[int], references: int) -> int:
        """How many of these blocks are referenced exactly so often."""
        counts = self._num_references
        return sum([counts[block] == references for block in blocks])

    def count_freed_by(self, references: Mapping[int, int]) -> int:
        """How many blocks would be free if so many references to each of these were given up."""
        counts = self._num_references
        return sum([counts[block] == given_up for block, given_up in references.items()])

    # -- references ------------------------------------------------------------------------------------------------

    def allocate(self, num_blocks: int) -> list[int]:
        """Take free blocks, each with one reference: those without content first, then evict.

        Raises:
            InvariantError: fewer are free; nothing is changed.
        """
        if num_blocks > self.num_free:
            raise InvariantError(f"{num_blocks} blocks asked for, but only {self.num_free} are free")
        if self._lifetime is not None:
            self._forget_expired()
        empty, counts = self._empty, self._num_references
        taken = []
        for _ in range(num_blocks):
            block = empty.pop() if empty else self._evict(self._order.pop())
            counts[block] = 1
            taken.append(block)
        return taken

    def share(self, blocks: Sequence[int]) -> None:
        """Add a reference to each of these published blocks: a hit.

        Raises:
            InvariantError: a block is not published.
        """
        counts = self._num_references
        for block in blocks:
            content = self._content[block]
            if content is None:
                raise InvariantError(f"block {block} cannot be shared: it is not published")
            if not counts[block]:
                self._uncache(content)
            counts[block] += 1
            content.num_hits += 1

    def free(self, blocks: Sequence[int], owner: str) -> None:
        """Give up one reference to each of these blocks, given in order of position; last first.

        Raises:
            InvariantError: naming `owner`, if a block has no reference or does not exist.
        """
        counts = self._num_references
        if blocks and not 0 <= min(blocks) <= max(blocks) < self.num_blocks:
            raise InvariantError(f"{owner} frees blocks {list(blocks)}, but ids are 0 to {self.num_blocks - 1}")
        self._num_uses += 1
        now = self._clock.now()
        for block in reversed(blocks):
            if counts[block] <= 0:
                raise InvariantError(f"{owner} frees block {block}, which has no reference: freed twice?")
            counts[block] -= 1
            if not counts[block]:
                self._release(block, now)

    def publish(self, blocks: Sequence[int], keys: Sequence[bytes], start: int, end: int) -> None:
        """Make contents known that are written.

        Args:
            blocks: In order of position, from the first of a prefix on.
            keys: Key of each block's content, in the same order.
            start: How many of them are published already.
            end: How many are to be.

        Raises:
            InvariantError: a block is free or published already, or the one before them is not
                published.
        """
        parent = self._content[blocks[start - 1]] if start else None
        if start and parent is None:
            raise InvariantError(f"block {blocks[start - 1]} is not published: nothing can be published behind it")
        for block, key in zip(blocks[start:end], keys[start:end], strict=True):
            if not self._num_references[block] or self._content[block] is not None:
                state = "published already" if self._num_references[block] else "free"
                raise InvariantError(f"block {block} cannot be published: it is {state}")
            content = self._index.add(Content(block, key, parent, next(self._publications)))
            self._content[block] = content
            if content.block_id != block:
                self._add_copy(content, block)
            elif parent is not None:
                parent.num_children += 1
            parent = content

    def reset(self) -> bool:
        """Forget all contents. False, and nothing is changed, if any block is referenced."""
        if self.num_free != self.num_blocks:
            return False
        while len(self._order):
            self._order.pop()
        self._index.clear()
        self._empty += [block for block, content in enumerate(self._content) if content is not None]
        self._content = [None] * self.num_blocks
        self.num_cached = 0
        return True

    # -- contents --------------------------------------------------------------------------------------------------

    def _release(self, block: int, now: float) -> None:
        """The last reference to a block is gone."""
        content = self._content[block]
        if content is not None and content.block_id == block and content not in self._copies:
            content.last_use, content.last_used_at = self._num_uses, now
            self.num_cached += 1
            if not content.num_children:
                self._order.add(content)
            return
        if content is not None:
            self._drop_copy(content, block)
        self._empty.append(block)

    def _add_copy(self, content: Content, block: int) -> None:
        """One more block has this content."""
        first = content.block_id
        if self._num_references[first]:
            self._copies.setdefault(content, []).append(block)
            return
        content.block_id = block
        self._uncache(content)
        self._content[first] = None
        self._empty.append(first)

    def _uncache(self, content: Content) -> None:
        """A cached content is referenced again."""
        self.num_cached -= 1
        if not content.num_children:
            self._order.remove(content)

    def _drop_copy(self, content: Content, block: int) -> None:
        """One of several blocks with the same content loses it."""
        copies = self._copies[content]
        if content.block_id == block:
            content.block_id = copies.pop(0)
        else:
            copies.remove(block)
        if not copies:
            del self._copies[content]
        self._content[block] = None

    def _evict(self, given_up: CachedContent) -> int:
        """Forget a content that the eviction order gave up. Its parent may be next."""
        block = given_up.block_id
        content = self._content[block]
        if content is None or content is not given_up or self._num_references[block] or content.num_children:
            raise InvariantError(f"the order of eviction gave up {given_up!r}, which it does not hold")
        self._index.remove(content)
        self._content[block] = None
        self.num_cached -= 1
        parent = content.parent
        if parent is not None:
            parent.num_children -= 1
            if not parent.num_children and not self._num_references[parent.block_id]:
                self._order.add(parent)
        return block

    def _forget_expired(self) -> None:
        now = self._clock.now()
        while len(self._order):
            content = self._order.pop()
            if not self._is_expired(content, now):
                self._order.add(content)
                return
            self._empty.append(self._evict(content))

    def _is_expired(self, content: CachedContent, now: float) -> bool:
        unused = not self._num_references[content.block_id]
        return unused and self._lifetime is not None and now - content.last_used_at >= self._lifetime

    # -- audit -----------------------------------------------------------------------------------------------------

    def check_invariants(self, tables: Sequence[tuple[str, Sequence[int]]]) -> None:
        """Verify conservation, the contents, the chain, and what may be evicted.

        Args:
            tables: Every owner of references with the blocks that it references.

        Raises:
            InvariantError: what does not hold, with block ids.
        """
        self._check_references(tables)
        self._check_free()
        self._check_contents()
        self._check_chain()
        self._index.check_invariants()

    def _check_references(self, tables: Sequence[tuple[str, Sequence[int]]]) -> None:
        for owner, blocks in tables:
            if len(set(blocks)) != len(blocks):
                raise InvariantError(f"{owner} holds a block twice: {list(blocks)}")
        due = Counter(block for _, blocks in tables for block in blocks)
        wrong = {block: n for block, n in enumerate(self._num_references) if n != due[block]}
        if wrong:
            right = {block: due[block] for block in wrong}
            raise InvariantError(f"reference counts are {wrong}, but by what is held they should be {right}")

    def _check_free(self) -> None:
        cached = [content.block_id for content in self._index if not self._num_references[content.block_id]]
        free = Counter([*self._empty, *cached])
        unreferenced = {block for block, n in enumerate(self._num_references) if n == 0}
        if free.total() != len(free) or len(cached) != self.num_cached:
            twice = [block for block, n in free.items() if n > 1]
            raise InvariantError(f"blocks {twice} are free twice, or {self.num_cached} is not the number of {cached}")
        if free.keys() != unreferenced:
            raise InvariantError(
                f"free + referenced is not the total: blocks {sorted(free.keys() - unreferenced)} are free although "
                f"referenced, blocks {sorted(unreferenced - free.keys())} are neither"
            )

    def _check_contents(self) -> None:
        listed = [(content.block_id, content) for content in self._index]
        spare = [(block, content) for content, blocks in self._copies.items() for block in blocks]
        known = {block: content for block, content in enumerate(self._content) if content is not None}
        if dict(listed + spare) != known or len(listed + spare) != len(known):
            wrong = sorted({block for block, _ in {*listed, *spare} ^ {*known.items()}})
            raise InvariantError(f"blocks {wrong} are listed under a content that is not theirs, or not listed")
        unused = [block for content, blocks in self._copies.items() for block in (content.block_id, *blocks)
                  if not self._num_references[block]]  # fmt: skip
        if unused:
            raise InvariantError(f"blocks {unused} keep a content that has copies, although they have no references")

    def _check_chain(self) -> None:
        contents = set(self._index)
        children = Counter(content.parent for content in contents if content.parent is not None)
        for content in contents:
            if content.parent is not None and content.parent not in contents:
                raise InvariantError(f"{content!r} is published, but its parent is not: it can never be hit")
            if content.num_children != children[content]:
                raise InvariantError(f"{content!r} has {children[content]} children, not {content.num_children}")
        due = {c.block_id for c in contents if not c.num_children and not self._num_references[c.block_id]}
        held = {content.block_id for content in self._order}
        if held != due or len(self._order) != len(due):
            raise InvariantError(f"blocks {sorted(held ^ due)} are wrongly in or out of the order of eviction")
