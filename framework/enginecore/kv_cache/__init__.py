"""Toolkit for KV cache managers: block keys, content index, block pool, eviction orders."""

from enginecore.kv_cache.block_hash import BlockHasher, encode_identity
from enginecore.kv_cache.block_pool import BlockPool
from enginecore.kv_cache.content import Content, ContentIndex, HashIndex
from enginecore.kv_cache.eviction import KeyedOrder, Lru
from enginecore.kv_cache.manager import BlockKeys, BlockPoolManager

__all__ = [
    "BlockHasher",
    "BlockKeys",
    "BlockPool",
    "BlockPoolManager",
    "Content",
    "ContentIndex",
    "HashIndex",
    "KeyedOrder",
    "Lru",
    "encode_identity",
]
