"""The blocks of the KV cache: who references them, what they hold, and which of them are free."""

from collections import Counter
from collections.abc import Iterable, Sequence

from enginecore.errors import InvariantError
from enginecore.kv_cache.eviction import EvictionOrder


class BlockPool:
    """Counts references, publishes content by hash, and gives out free blocks.

    A block is referenced, or free. It is published, or not: then it is *known* by the hash of its content, and while
    free it stands in the order of eviction. Free blocks without content are given out before any other.

    Two requests may compute the same content at the same time. The block that was published first is *the* block of
    that hash: it is the one that is hit. The others are duplicates. They keep their hash while they are referenced, so
    that one of them takes over if the first is evicted meanwhile; the last reference gone, a duplicate has no content.

    This keeps the chain: **the parent of a published hash is published**, so that no block waits where no lookup gets.
    Whoever references a published block references one with its parent's hash too. Blocks are freed children first,
    and where a duplicate is freed the block of its hash counts as used just now; so a parent leaves the order of
    eviction after its children.

    Args:
        num_blocks: Blocks in the pool; ids are 0 to num_blocks - 1.
        order: Order of eviction, empty; the pool's own from here on.
    """

    def __init__(self, num_blocks: int, order: EvictionOrder) -> None:
        self.num_blocks = num_blocks
        self._num_references = [0] * num_blocks
        self._hash: list[bytes | None] = [None] * num_blocks
        self._parent: list[bytes | None] = [None] * num_blocks  # hash of the parent; read where _hash is set
        self._published: dict[bytes, int] = {}
        self._duplicates: dict[bytes, list[int]] = {}  # in order of publication, each referenced
        self._empty = list(range(num_blocks - 1, -1, -1))  # free, without content; a stack
        self._cached = order  # free, with content

    @property
    def num_free(self) -> int:
        """Blocks that nobody references."""
        return len(self._empty) + len(self._cached)

    @property
    def num_cached(self) -> int:
        """Free blocks whose content can still be hit."""
        return len(self._cached)

    def find_prefix(self, hashes: Iterable[bytes]) -> list[int]:
        """The blocks of these chained hashes, up to the first that is not published."""
        blocks = []
        for block_hash in hashes:
            block = self._published.get(block_hash)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def count_prefix(self, hashes: Sequence[bytes], limit: int) -> int:
        """How many blocks `find_prefix` would find for the first `limit` hashes.

        By bisection, since the published ones come first: a scheduler may ask this of every waiting request in every
        step, and what was found before is out of date as soon as any block is published or evicted.
        """
        low, high = 0, limit
        while low < high:
            middle = (low + high) // 2
            if hashes[middle] in self._published:
                low = middle + 1
            else:
                high = middle
        return low

    def holds(self, blocks: Sequence[int], hashes: Sequence[bytes]) -> bool:
        """Whether these blocks hold these contents, one by one, as published."""
        return [self._hash[block] for block in blocks] == list(hashes)

    def count_references(self, blocks: Sequence[int], references: int) -> int:
        """How many of these blocks are referenced exactly so often."""
        counts = self._num_references
        return sum([counts[block] == references for block in blocks])

    def allocate(self, num_blocks: int) -> list[int]:
        """Take free blocks, each with one reference: those without content first, then evicted ones.

        Raises:
            InvariantError: fewer are free; nothing is changed.
        """
        if num_blocks > self.num_free:
            raise InvariantError(f"{num_blocks} blocks asked for, but only {self.num_free} are free")
        empty, counts = self._empty, self._num_references
        taken = []
        for _ in range(num_blocks):
            block = empty.pop() if empty else self._evict()
            counts[block] = 1
            taken.append(block)
        return taken

    def share(self, blocks: Sequence[int]) -> None:
        """Add a reference to each of these published blocks. A free one leaves the order of eviction.

        Raises:
            InvariantError: a block is not published.
        """
        for block in blocks:
            if self._hash[block] is None:
                raise InvariantError(f"block {block} cannot be shared: it is not published")
            if self._num_references[block] == 0:
                self._cached.remove(block)
            self._num_references[block] += 1

    def free(self, blocks: Sequence[int], owner: str) -> None:
        """Give up one reference to each of these blocks, which stand in order of position. The last goes first.

        Raises:
            InvariantError: naming `owner`, if nobody references a block, or there is no such block.
        """
        counts = self._num_references
        if blocks and not 0 <= min(blocks) <= max(blocks) < self.num_blocks:
            raise InvariantError(f"{owner} frees blocks {list(blocks)}, but ids are 0 to {self.num_blocks - 1}")
        for block in reversed(blocks):
            if counts[block] <= 0:
                raise InvariantError(f"{owner} frees block {block}, which nobody references: freed twice?")
            counts[block] -= 1
            if counts[block] == 0:
                self._release(block)

    def publish(self, blocks: Sequence[int], hashes: Sequence[bytes], parent: bytes | None) -> None:
        """Make the content of these blocks known, which stand in order of position and are written.

        Args:
            blocks: Referenced, and not published yet.
            hashes: Their hashes, chained.
            parent: Hash of the block before them, which is published; None if they are the first.

        Raises:
            InvariantError: a block is free, or published already.
        """
        for block, block_hash in zip(blocks, hashes, strict=True):
            if self._num_references[block] == 0 or self._hash[block] is not None:
                state = "free" if self._num_references[block] == 0 else "published already"
                raise InvariantError(f"block {block} cannot be published: it is {state}")
            if self._published.setdefault(block_hash, block) != block:
                self._duplicates.setdefault(block_hash, []).append(block)
            self._hash[block], self._parent[block] = block_hash, parent
            parent = block_hash

    def reset(self) -> bool:
        """Forget all contents. False, and nothing is changed, if any block is referenced."""
        if self.num_free != self.num_blocks:
            return False
        while self._cached:
            self._empty.append(self._evict())
        return True

    def _evict(self) -> int:
        block = self._cached.pop()
        block_hash, self._hash[block] = self._hash[block], None
        if block_hash is None or self._published.get(block_hash) != block:
            raise InvariantError(f"the order of eviction gave up block {block}, which it does not hold")
        if block_hash in self._duplicates:
            self._published[block_hash] = self._take_duplicate(block_hash, self._duplicates[block_hash][0])
        else:
            del self._published[block_hash]
        return block

    def _release(self, block: int) -> None:
        block_hash = self._hash[block]
        if block_hash is None:
            self._empty.append(block)
            return
        first = self._published[block_hash]
        if first == block:
            self._cached.add(block)
            return
        self._take_duplicate(block_hash, block)
        self._hash[block] = None
        self._empty.append(block)
        if self._num_references[first] == 0:
            self._cached.remove(first)
            self._cached.add(first)

    def _take_duplicate(self, block_hash: bytes, block: int) -> int:
        duplicates = self._duplicates[block_hash]
        duplicates.remove(block)
        if not duplicates:
            del self._duplicates[block_hash]
        return block

    def check_invariants(self, tables: Sequence[tuple[str, Sequence[int]]]) -> None:
        """Verify conservation, the maps, and the chain.

        Args:
            tables: Every owner of references with the blocks that it references.

        Raises:
            InvariantError: what does not hold, with block ids.
        """
        self._check_references(tables)
        self._check_free()
        self._check_contents()
        self._check_chain()

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
        free = Counter([*self._empty, *self._cached])
        unreferenced = {block for block, n in enumerate(self._num_references) if n == 0}
        if free.total() != len(free):
            raise InvariantError(f"blocks {[b for b, n in free.items() if n > 1]} are free twice")
        if free.keys() != unreferenced:
            raise InvariantError(
                f"free + referenced is not the total: blocks {sorted(free.keys() - unreferenced)} are free although "
                f"referenced, blocks {sorted(unreferenced - free.keys())} are neither"
            )

    def _check_contents(self) -> None:
        listed = [(h, block) for h, block in self._published.items()]
        spare = [(h, block) for h, blocks in self._duplicates.items() for block in blocks]
        known = [(h, block) for block, h in enumerate(self._hash) if h is not None]
        if sorted(listed + spare) != sorted(known):
            wrong = sorted({block for _, block in {*listed, *spare} ^ {*known}})
            raise InvariantError(f"blocks {wrong} are listed under a hash that is not theirs, or not listed")
        free = {block for _, block in listed if self._num_references[block] == 0}
        if free != set(self._cached):
            raise InvariantError(f"blocks {sorted(free ^ set(self._cached))} are wrongly in or out of eviction order")
        unused = [block for _, block in spare if self._num_references[block] == 0]
        if unused:
            raise InvariantError(f"duplicates {unused} are kept although nobody references them")

    def _check_chain(self) -> None:
        for block in self._published.values():
            parent = self._parent[block]
            if parent is not None and parent not in self._published:
                raise InvariantError(f"block {block} is published, but its parent is not: it can never be hit")
