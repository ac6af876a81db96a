"""KV cache managers: `paged`."""

from collections.abc import Iterable

from enginecore.interfaces import KVCacheManager
from enginecore.plugin import Component, ComponentSettings, KVCacheManagerContext, hookimpl


def _paged(settings: ComponentSettings, context: KVCacheManagerContext) -> KVCacheManager:
    from enginecore_kv_cache.paged import PagedKVCacheManager

    return PagedKVCacheManager(context.config, enable_prefix_caching=context.enable_prefix_caching)


@hookimpl
def enginecore_components() -> Iterable[Component]:
    """The components of this plugin."""
    return [
        Component(
            kind="kv_cache_manager",
            name="paged",
            factory=_paged,
            capabilities=frozenset({"prefix_caching"}),
            summary="Blocks of fixed size, shared by content hash, least recently used prefixes evicted tail first.",
        )
    ]
