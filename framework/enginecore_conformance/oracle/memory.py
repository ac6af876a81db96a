"""The oracle's KV cache: one digest per slot."""

from array import array
from collections import deque
from collections.abc import Sequence

from enginecore.interfaces import KVCacheConfig
from enginecore_conformance.oracle.model import DIGEST_BYTES, extend_digest, extend_digests


class SlotMemory:
    """Blocks of slots. A slot keeps what was written to it until it is overwritten."""

    def __init__(self, config: KVCacheConfig) -> None:
        self.num_blocks = config.num_blocks
        self.block_size = config.block_size
        self._blocks = [array("q", [-1 - block]) * config.block_size for block in range(config.num_blocks)]

    def write(self, block_ids: Sequence[int], start: int, token_ids: Sequence[int], root: int) -> None:
        """Compute tokens from position `start` on, each from the slot before it, the first of all from `root`."""
        size = self.block_size
        last = self._blocks[block_ids[(start - 1) // size]][(start - 1) % size] if start else root
        if len(token_ids) == 1:  # a decode: most writes are, and a loop would double their cost
            self._put(block_ids[start // size], start % size, extend_digest(last, token_ids[0]))
            return
        for position, digest in enumerate(extend_digests(last, token_ids), start):
            self._put(block_ids[position // size], position % size, digest)

    def read(self, block_ids: Sequence[int], end: int) -> memoryview:
        """All slots up to position `end`, in order of position, through a block table."""
        content = b"".join([self._blocks[block] for block in block_ids[: -(-end // self.block_size)]])
        return memoryview(content)[: end * DIGEST_BYTES]

    def _put(self, block: int, offset: int, digest: int) -> None:
        self._blocks[block][offset] = digest


class LateSlotMemory(SlotMemory):
    """The memory of an executor that runs out of order: what a step writes may land any time until it has returned.

    So every write happens twice, at once and when its step returns; the second lands on top of whatever was written to
    the slot meanwhile, and stays.
    """

    def __init__(self, config: KVCacheConfig) -> None:
        super().__init__(config)
        self._late: deque[dict[tuple[int, int], int]] = deque()

    def begin_step(self) -> None:
        """Writes from here on belong to the next step."""
        self._late.append({})

    def end_step(self) -> None:
        """The oldest step returns."""
        landing = self._late.popleft()
        for (block, offset), digest in landing.items():
            self._blocks[block][offset] = digest
        for later in self._late:
            for slot in later.keys() & landing:
                del later[slot]

    def _put(self, block: int, offset: int, digest: int) -> None:
        super()._put(block, offset, digest)
        self._late[-1][block, offset] = digest
