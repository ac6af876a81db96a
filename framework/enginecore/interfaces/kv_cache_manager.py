"""KVCacheManager: which blocks each request holds, and which of them it shares."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from enginecore.messages import BlockIds
from enginecore.request import Request


class CachedPrefix(NamedTuple):
    """The longest cached prefix of a request at one moment.

    Pins nothing: valid until blocks are allocated, published or freed.

    Attributes:
        block_ids: The blocks of the prefix, per KV cache group.
        num_tokens: Tokens in them; fewer than the request has, since its last token is always
            computed.
    """

    block_ids: BlockIds
    num_tokens: int


class PublishedBlocks(NamedTuple):
    """Blocks of a request whose content became known to the prefix cache.

    Attributes:
        request: The request that published them.
        first_block: Position of the first of them in the request's table.
        block_ids: The blocks in order of position, per KV cache group.
    """

    request: Request
    first_block: int
    block_ids: BlockIds


class KVCacheStats(msgspec.Struct, array_like=True):
    """Gauges of now and counters since start.

    Attributes:
        num_blocks: Blocks in the pool.
        num_free_blocks: Blocks without a reference, cached or not.
        num_cached_blocks: Free blocks whose content can still be hit.
        queries: Prompt tokens looked up, counted when the request gets its blocks.
        hits: Prompt tokens found.
    """

    num_blocks: int
    num_free_blocks: int
    num_cached_blocks: int = 0
    queries: int = 0
    hits: int = 0


class KVCacheManager(ABC):
    """Owns the block pool. Subclass it. Called by the scheduler only, on one thread.

    A request holds blocks from its first successful `allocate_slots` to `free`. Cache identity is
    the tokens, the salt and the adapter; nothing else may hit. The blocks of a request with
    `has_ready_hashes` are known by the hashes that came with it, as far as these go: only managers
    that declare "ready_hashes" get such requests.

    Block ids come per KV cache group, one list for each entry of `KVCacheConfig.groups`, in the
    same order.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def num_blocks(self) -> int:
        """Blocks in the pool."""

    @property
    @abstractmethod
    def block_size(self) -> int:
        """Tokens per block."""

    @property
    @abstractmethod
    def num_free_blocks(self) -> int:
        """Blocks without a reference; cached ones among them are evicted when taken."""

    @abstractmethod
    def get_computed_blocks(self, request: Request) -> CachedPrefix:
        """The longest cached prefix of the known tokens, at most all but the last.

        Changes nothing.
        """

    def peek_cached_tokens(self, request: Request) -> int:
        """Length of that prefix in tokens, as a hint: touches no order and no statistics.

        Default: `get_computed_blocks(request).num_tokens`.
        """
        return self.get_computed_blocks(request).num_tokens

    @abstractmethod
    def num_blocks_to_allocate(self, request: Request, num_tokens: int, prefix: CachedPrefix | None = None) -> int:
        """Free blocks that `allocate_slots` would take with the same arguments.

        Those that it would pin are included.
        """

    @abstractmethod
    def num_freeable_blocks(self, requests: Sequence[Request], keep: CachedPrefix | None = None) -> int:
        """Blocks that return to the pool if all of `requests` are freed.

        Those are the blocks that no other request references. Blocks of `keep` do not count:
        another request is about to share them.
        """

    @abstractmethod
    def allocate_slots(self, request: Request, num_tokens: int, prefix: CachedPrefix | None = None) -> BlockIds | None:
        """See to it that the request holds slots for its first `num_tokens` tokens, all or none.

        `num_tokens` counts slots from the first token on, not tokens that are known: it exceeds
        `request.num_tokens` where a step computes a token that the executor feeds by itself, and
        by the number of draft tokens where drafts need slots ahead.

        With `prefix`, which only a request without blocks may bring, its blocks are shared and
        stand first.

        Returns:
            The block ids that were added, per KV cache group (empty lists if it held enough); None
            if there are too few free blocks, and then nothing has changed.
        """

    @abstractmethod
    def cache_blocks(self, request: Request, num_tokens: int) -> None:
        """Publish the full blocks of the request's first `num_tokens` tokens.

        Finished steps have written them.
        """

    @abstractmethod
    def get_block_ids(self, request: Request) -> BlockIds:
        """All blocks that the request holds, in order of position, per KV cache group."""

    @abstractmethod
    def free(self, request: Request) -> None:
        """Give up the request's references, last block first. Without blocks, nothing happens."""

    def set_aside(self, request: Request, first_block: int, num_blocks: int) -> list[int]:
        """Foreseen (KV connector): take blocks from a request without giving them to the pool.

        For blocks that a transfer may still write to: they count as referenced, by no request,
        until `give_back`. The request keeps the blocks before `first_block`.

        Args:
            request: Holds the blocks.
            first_block: Position of the first of them in the request's table.
            num_blocks: How many, to the end of the table.

        Returns:
            Their ids, of all KV cache groups.

        Raises:
            NotImplementedError: the default.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot set blocks aside")

    def give_back(self, block_ids: Sequence[int]) -> None:
        """Foreseen (KV connector): give blocks that were set aside to the pool, without content.

        Raises:
            NotImplementedError: the default.
        """
        raise NotImplementedError(f"{type(self).__name__} has set no blocks aside: {list(block_ids)}")

    def take_published(self) -> list[PublishedBlocks]:
        """Foreseen (KV connector): blocks that were published since the last call, in order.

        Raises:
            NotImplementedError: the default.
        """
        raise NotImplementedError(f"{type(self).__name__} does not record which blocks it publishes")

    def take_evicted(self) -> list[int]:
        """Foreseen (KV connector): blocks that lost cached content since the last call, in order.

        Raises:
            NotImplementedError: the default.
        """
        raise NotImplementedError(f"{type(self).__name__} does not record which blocks it evicts")

    @abstractmethod
    def reset_prefix_cache(self) -> bool:
        """Forget all published blocks; whether it was done.

        False, and nothing is changed, if any block is referenced.
        """

    @abstractmethod
    def get_stats(self) -> KVCacheStats:
        """Gauges and counters."""

    @abstractmethod
    def check_invariants(self) -> None:
        """Verify conservation: free + referenced = total, no count below 0, no block twice in the
        free list.

        Raises:
            InvariantError: what does not hold, with block ids.
        """
