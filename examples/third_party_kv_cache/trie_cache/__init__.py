"""`trie`, a KV cache manager for enginecore, from scratch, and `greedy-dual`, an order of eviction for any manager.

One package may offer several components; they count as a whole or not at all.
"""

from typing import Annotated

from pydantic import Field

from enginecore.interfaces import EvictionOrder, KVCacheManager
from enginecore.plugin import Component, ComponentSettings, EvictionContext, KVCacheManagerContext, hookimpl


class GreedyDualSettings(ComponentSettings):
    """Table `[eviction.greedy-dual]`."""

    position_cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=0.01, description="What a block costs more to compute for each block before it, which it attends to."
    )


def make_trie(settings: ComponentSettings, context: KVCacheManagerContext) -> KVCacheManager:
    """Called when an engine is built that uses it."""
    from trie_cache.manager import TrieKVCacheManager

    return TrieKVCacheManager(context)


def make_greedy_dual(settings: GreedyDualSettings, context: EvictionContext) -> EvictionOrder:
    """Likewise."""
    from trie_cache.greedy_dual import GreedyDual

    return GreedyDual(settings.position_cost)


TRIE = Component(
    kind="kv_cache_manager",
    name="trie",
    factory=make_trie,
    capabilities=frozenset({"eviction", "prefix_caching"}),
    summary="Shared prefixes are found in a trie, one node per block, without hashes.",
)

GREEDY_DUAL = Component(
    kind="eviction",
    name="greedy-dual",
    factory=make_greedy_dual,
    settings=GreedyDualSettings,
    summary="What is hit often and costs much to compute stays; what is not used ages.",
)


@hookimpl
def enginecore_components() -> list[Component]:
    """What this package offers."""
    return [TRIE, GREEDY_DUAL]
