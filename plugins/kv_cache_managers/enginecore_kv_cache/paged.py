"""`paged`: blocks of fixed size with automatic prefix caching (PagedAttention; vLLM v1's KVCacheManager)."""

import os

from enginecore.clock import Clock
from enginecore.interfaces import EvictionOrder, KVCacheConfig
from enginecore.kv_cache import BlockHasher, BlockPoolManager, HashIndex


class PagedKVCacheManager(BlockPoolManager):
    """Finds content by chained hashes, made once per request: one look-up per block, and none for a near miss.

    Args:
        config: The KV cache as sized, with one group of layers.
        enable_prefix_caching: False: nothing is hashed, published or hit.
        order: Order of eviction, empty; None: least recently used first.
        clock: The engine's clock; None: real time.
        seed: Secret of the block hashes; None: drawn at random.
    """

    def __init__(
        self,
        config: KVCacheConfig,
        *,
        enable_prefix_caching: bool = True,
        order: EvictionOrder | None = None,
        clock: Clock | None = None,
        seed: bytes | None = None,
    ) -> None:
        super().__init__(
            config,
            HashIndex(),
            BlockHasher(config.block_size, os.urandom(32) if seed is None else seed),
            enable_prefix_caching=enable_prefix_caching,
            order=order,
            clock=clock,
        )
