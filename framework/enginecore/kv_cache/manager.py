"""A KV cache manager over a block pool, for any kind of block keys and content index."""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from enginecore.clock import Clock, RealClock
from enginecore.errors import ConfigurationError, InvariantError
from enginecore.interfaces import CachedPrefix, EvictionOrder, KVCacheConfig, KVCacheManager, KVCacheStats
from enginecore.kv_cache.block_pool import BlockPool
from enginecore.kv_cache.content import ContentIndex
from enginecore.kv_cache.eviction import Lru
from enginecore.messages import BlockIds
from enginecore.request import Request


class BlockKeys(Protocol):
    """Makes the keys by which an index knows the contents of a request's blocks."""

    def extend(self, request: Request, num_blocks: int) -> None:
        """Grow `request.block_hashes` to at least `num_blocks` keys, for blocks that are full of
        known tokens.

        Together with those before it, a key stands for the request's cache identity and every token
        so far.
        """
        ...


class _Table:
    """The blocks of one request."""

    __slots__ = ("blocks", "num_published")

    def __init__(self, num_published: int) -> None:
        self.blocks: list[int] = []  # in order of position
        self.num_published = num_published  # how many of them, from the first, are published


class BlockPoolManager(KVCacheManager):
    """Knows which blocks each request holds; the pool knows the rest.

    Hits are counted once per request, when its first admission succeeds: a failed attempt or a
    resumption after a preemption is not a second query.

    Args:
        config: The KV cache as sized, with one group of layers.
        index: Finds contents, empty.
        keys: Makes the keys of that index.
        enable_prefix_caching: False: no keys are made, nothing is published or hit.
        order: Order of eviction, empty; None: least recently used first.
        clock: The engine's clock; None: real time.

    Raises:
        ConfigurationError: the pool has no blocks, or several groups of layers.
    """

    def __init__(
        self,
        config: KVCacheConfig,
        index: ContentIndex,
        keys: BlockKeys,
        *,
        enable_prefix_caching: bool = True,
        order: EvictionOrder | None = None,
        clock: Clock | None = None,
    ) -> None:
        if len(config.groups) != 1:
            raise ConfigurationError(f"{type(self).__name__} keeps 1 KV cache group, got {len(config.groups)}")
        if config.num_blocks < 1 or config.block_size < 1:
            raise ConfigurationError(
                f"num_blocks and block_size must be at least 1, got {config.num_blocks} and {config.block_size}"
            )
        self._block_size = config.block_size
        self._enable_prefix_caching = enable_prefix_caching
        self._keys = keys
        # an order may be empty and yet be one: do not ask for its truth
        self._pool = BlockPool(config.num_blocks, index, Lru() if order is None else order, clock or RealClock())
        # by request, not by id: an id may be in use again before its first owner has been freed
        self._tables: dict[Request, _Table] = {}
        self._num_queried_tokens = self._num_hit_tokens = 0

    @property
    def num_blocks(self) -> int:
        return self._pool.num_blocks

    @property
    def block_size(self) -> int:
        return self._block_size

    @property
    def num_free_blocks(self) -> int:
        return self._pool.num_free

    def get_computed_blocks(self, request: Request) -> CachedPrefix:
        blocks = self._pool.find_prefix(request.block_hashes, self._num_hittable_blocks(request))
        return CachedPrefix((blocks,), len(blocks) * self._block_size)

    def peek_cached_tokens(self, request: Request) -> int:
        return self._pool.count_prefix(request.block_hashes, self._num_hittable_blocks(request)) * self._block_size

    def num_blocks_to_allocate(self, request: Request, num_tokens: int, prefix: CachedPrefix | None = None) -> int:
        _, num_new, num_pinned = self._demand(request, num_tokens, prefix)
        return num_new + num_pinned

    def num_freeable_blocks(self, requests: Sequence[Request], keep: CachedPrefix | None = None) -> int:
        held = Counter(block for request in requests for block in self.get_block_ids(request)[0])
        for block in keep.block_ids[0] if keep else ():
            held.pop(block, None)
        return self._pool.count_freed_by(held)

    def allocate_slots(self, request: Request, num_tokens: int, prefix: CachedPrefix | None = None) -> BlockIds | None:
        shared, num_new, num_pinned = self._demand(request, num_tokens, prefix)
        if num_new + num_pinned > self._pool.num_free:
            return None
        if prefix is not None:
            self._pool.share(shared)
            self._count_lookup(request, prefix)
        if not num_new and not shared:
            return ([],)
        added = [*shared, *self._pool.allocate(num_new)]
        table = self._tables.get(request)
        if table is None:
            table = self._tables[request] = _Table(len(shared))
        table.blocks += added
        return (added,)

    def cache_blocks(self, request: Request, num_tokens: int) -> None:
        table = self._tables.get(request)
        num_full, num_held = num_tokens // self._block_size, len(table.blocks) if table else 0
        if num_tokens > request.num_tokens or num_full > num_held:
            raise InvariantError(
                f"request {request.request_id!r} has {request.num_tokens} known tokens and {num_held} blocks of "
                f"{self._block_size}: {num_tokens} tokens of it cannot have been written"
            )
        if table is None or num_full <= table.num_published or not self._uses_cache(request):
            return
        num_full = self._make_keys(request, num_full)
        if num_full <= table.num_published:
            return
        self._pool.publish(table.blocks, request.block_hashes, table.num_published, num_full)
        table.num_published = num_full

    def get_block_ids(self, request: Request) -> BlockIds:
        table = self._tables.get(request)
        return (list(table.blocks) if table else [],)

    def free(self, request: Request) -> None:
        table = self._tables.pop(request, None)
        if table:
            self._pool.free(table.blocks, f"request {request.request_id!r}")

    def reset_prefix_cache(self) -> bool:
        return self._pool.reset()

    def get_stats(self) -> KVCacheStats:
        return KVCacheStats(
            num_blocks=self._pool.num_blocks,
            num_free_blocks=self._pool.num_free,
            num_cached_blocks=self._pool.num_cached,
            queries=self._num_queried_tokens,
            hits=self._num_hit_tokens,
        )

    def check_invariants(self) -> None:
        """Verify the pool, and that each request's table is published as far as it says."""
        self._pool.check_invariants([(f"request {r.request_id!r}", t.blocks) for r, t in self._tables.items()])
        for request, table in self._tables.items():
            published = table.blocks[: table.num_published]
            if not self._pool.holds(published, request.block_hashes[: table.num_published]):
                raise InvariantError(f"request {request.request_id!r} holds blocks {published} with foreign content")

    def _uses_cache(self, request: Request) -> bool:
        return self._enable_prefix_caching and not request.skip_prefix_cache

    def _num_hittable_blocks(self, request: Request) -> int:
        """How many blocks a lookup may find, keys made. The last token is always computed."""
        if not self._uses_cache(request):
            return 0
        return self._make_keys(request, (request.num_tokens - 1) // self._block_size)

    def _make_keys(self, request: Request, num_blocks: int) -> int:
        """Make keys for so many blocks; returns how many have one: ready hashes may be fewer."""
        if request.has_ready_hashes:
            return min(num_blocks, len(request.block_hashes))
        self._keys.extend(request, num_blocks)
        return num_blocks

    def _demand(self, request: Request, num_tokens: int, prefix: CachedPrefix | None) -> tuple[Sequence[int], int, int]:
        """Blocks to share, number of new ones needed, and how many of the shared are free."""
        table = self._tables.get(request)
        num_needed = -(-num_tokens // self._block_size)
        if prefix is None:
            return (), max(num_needed - (len(table.blocks) if table else 0), 0), 0
        (shared,) = prefix.block_ids
        if table:
            raise InvariantError(f"request {request.request_id!r} holds blocks already: it cannot bring a prefix")
        if not self._pool.holds(shared, request.block_hashes[: len(shared)]):
            raise InvariantError(
                f"blocks {shared} do not hold the prefix of request {request.request_id!r} any more, or never did: "
                "a CachedPrefix is valid until blocks are allocated, published or freed"
            )
        return shared, max(num_needed - len(shared), 0), self._pool.count_references(shared, 0)

    def _count_lookup(self, request: Request, prefix: CachedPrefix) -> None:
        if request.num_preemptions == 0 and self._uses_cache(request):
            self._num_queried_tokens += request.num_prompt_tokens
            self._num_hit_tokens += prefix.num_tokens
