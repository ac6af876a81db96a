"""KV cache managers `paged` and `radix`, and orders of eviction."""

from collections.abc import Iterable

from enginecore.interfaces import EvictionOrder, KVCacheManager
from enginecore.kv_cache import Lru
from enginecore.plugin import Component, ComponentSettings, EvictionContext, KVCacheManagerContext, hookimpl
from enginecore_kv_cache.evictions import Fifo, Lfu, Ttl, TtlSettings

_CAPABILITIES = frozenset({"eviction", "prefix_caching", "ready_hashes"})


def _paged(settings: ComponentSettings, context: KVCacheManagerContext) -> KVCacheManager:
    from enginecore_kv_cache.paged import PagedKVCacheManager

    return PagedKVCacheManager(
        context.config,
        enable_prefix_caching=context.enable_prefix_caching,
        order=context.eviction,
        clock=context.clock,
    )


def _radix(settings: ComponentSettings, context: KVCacheManagerContext) -> KVCacheManager:
    from enginecore_kv_cache.radix import RadixKVCacheManager

    return RadixKVCacheManager(
        context.config,
        enable_prefix_caching=context.enable_prefix_caching,
        order=context.eviction,
        clock=context.clock,
    )


def _lru(settings: ComponentSettings, context: EvictionContext) -> EvictionOrder:
    return Lru()


def _lfu(settings: ComponentSettings, context: EvictionContext) -> EvictionOrder:
    return Lfu()


def _fifo(settings: ComponentSettings, context: EvictionContext) -> EvictionOrder:
    return Fifo()


def _ttl(settings: TtlSettings, context: EvictionContext) -> EvictionOrder:
    return Ttl(settings.seconds)


@hookimpl
def enginecore_components() -> Iterable[Component]:
    """The components of this plugin."""
    return [
        Component(
            kind="kv_cache_manager",
            name="paged",
            factory=_paged,
            capabilities=_CAPABILITIES,
            summary="Finds shared prefixes by chained hashes of blocks.",
        ),
        Component(
            kind="kv_cache_manager",
            name="radix",
            factory=_radix,
            capabilities=_CAPABILITIES,
            summary="Finds shared prefixes in a tree of token spans, without hashes.",
        ),
        Component(kind="eviction", name="lru", factory=_lru, summary="Evicts the least recently used first."),
        Component(kind="eviction", name="lfu", factory=_lfu, summary="Evicts what has the fewest hits first."),
        Component(kind="eviction", name="fifo", factory=_fifo, summary="Evicts what was published first."),
        Component(
            kind="eviction",
            name="ttl",
            factory=_ttl,
            settings=TtlSettings,
            summary="As lru, and drops content that is unused for some seconds.",
        ),
    ]
