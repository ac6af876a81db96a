"""`radix`: cached prefixes in a tree of token spans, block by block (RadixAttention, SGLang, NeurIPS 2024)."""

from enginecore.clock import Clock
from enginecore.interfaces import EvictionOrder, KVCacheConfig
from enginecore.kv_cache import BlockPoolManager
from enginecore_kv_cache.radix_tree import RadixTree, TokenKeys


class RadixKVCacheManager(BlockPoolManager):
    """Finds content by comparing tokens along a tree: nothing is hashed, and nothing can be forged.

    It shares, hits and evicts as `paged` does.

    Args:
        config: The KV cache as sized, with one group of layers.
        enable_prefix_caching: False: nothing is published or hit.
        order: Order of eviction, empty; None: least recently used first.
        clock: The engine's clock; None: real time.
    """

    def __init__(
        self,
        config: KVCacheConfig,
        *,
        enable_prefix_caching: bool = True,
        order: EvictionOrder | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(
            config,
            RadixTree(),
            TokenKeys(config.block_size),
            enable_prefix_caching=enable_prefix_caching,
            order=order,
            clock=clock,
        )
