"""KVCacheManager: which blocks a request holds, and which of them it shares."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from enginecore.messages import BlockIds
from enginecore.request import Request


class CachedPrefix(NamedTuple):
    """The longest cached prefix of a request, at one moment.

    Pins nothing: it is valid until blocks are allocated, published or freed.

    Attributes:
        block_ids: The blocks that hold it, per KV cache group.
        num_tokens: How many tokens they hold; less than the request's tokens, since the last one is always computed.
    """

    block_ids: BlockIds
    num_tokens: int


class KVCacheStats(msgspec.Struct, array_like=True):
    """Gauges of now and counters since start.

    Attributes:
        num_blocks: Blocks in the pool.
        num_free_blocks: Referenced by nobody: free for the taking, cached or not.
        num_cached_blocks: Free blocks whose content can still be hit.
        queries: Prompt tokens looked up, counted when the request got its blocks.
        hits: Those found.
    """

    num_blocks: int
    num_free_blocks: int
    num_cached_blocks: int = 0
    queries: int = 0
    hits: int = 0


class KVCacheManager(Protocol):
    """Owns the block pool. Called by the scheduler only, on one thread.

    A request holds blocks from its first successful `allocate_slots` to `free`. Cache identity is the tokens, the
    salt and the adapter; nothing else may hit. A request with `has_ready_hashes` says itself what its blocks hold, as
    far as its hashes go: only managers that declare "ready_hashes" get any.
    """

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        ...

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        ...

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody references; cached ones among them are evicted when taken."""
        ...

    def get_computed_blocks(self, request: Request) -> CachedPrefix:
        """The longest cached prefix of the request's known tokens, at most all but the last. Changes nothing."""
        ...

    def peek_cached_tokens(self, request: Request) -> int:
        """Length of that prefix in tokens. A hint: pins nothing, touches no order and no statistics."""
        ...

    def num_blocks_to_allocate(self, request: Request, num_tokens: int, prefix: CachedPrefix | None = None) -> int:
        """Free blocks that `allocate_slots` with the same arguments would take, those that it would pin included."""
        ...

    def num_freeable_blocks(self, requests: Sequence[Request], keep: CachedPrefix | None = None) -> int:
        """Blocks that come back to the pool if all of these are freed: those that nobody else references.

        Blocks of `keep` do not count: somebody is about to share them.
        """
        ...

    def allocate_slots(self, request: Request, num_tokens: int, prefix: CachedPrefix | None = None) -> BlockIds | None:
        """See to it that the request holds slots for its first `num_tokens` tokens: all of them or none.

        With `prefix`, which only a request without blocks may bring, its blocks are shared and stand first.
        Returns the block ids that were added, per KV cache group (empty lists if it held enough), or None, and then
        nothing has changed.
        """
        ...

    def cache_blocks(self, request: Request, num_tokens: int) -> None:
        """Publish its full blocks among the first `num_tokens` tokens, which finished steps must have written."""
        ...

    def get_block_ids(self, request: Request) -> BlockIds:
        """All blocks that it holds, in order of position, per KV cache group."""
        ...

    def free(self, request: Request) -> None:
        """Give up its references, last block first. A request without blocks is left alone."""
        ...

    def reset_prefix_cache(self) -> bool:
        """Forget all published blocks. False, and nothing is changed, if any block is referenced."""
        ...

    def get_stats(self) -> KVCacheStats:
        """Gauges and counters."""
        ...

    def check_invariants(self) -> None:
        """Verify conservation: free + referenced = total, no count below 0, no block twice in the free list.

        Raises:
            InvariantError: what does not hold, with block ids.
        """
        ...
