"""Toolkit for KV cache managers: block hashes, the block pool, and the order of eviction."""

from enginecore.kv_cache.block_hash import BlockHasher
from enginecore.kv_cache.block_pool import BlockPool
from enginecore.kv_cache.eviction import EvictionOrder, Lru

__all__ = ["BlockHasher", "BlockPool", "EvictionOrder", "Lru"]
