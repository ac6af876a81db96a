"""A scheduler and a KV cache manager that the engine core's process finds as "tests.client.components:NAME"."""

from enginecore.kinds import KV_CACHE_MANAGER
from enginecore.plugin import Component
from enginecore.scheduling import SchedulingPolicy, policy_component
from enginecore_kv_cache.paged import PagedKVCacheManager


class LastComeFirst(SchedulingPolicy):
    """Whoever came last goes first."""

    def rank(self, request, scheduler):
        return -request.seq


def make_manager(settings, context):
    return PagedKVCacheManager(
        context.config,
        enable_prefix_caching=context.enable_prefix_caching,
        order=context.eviction,
        clock=context.clock,
    )


SCHEDULER = policy_component("last-come-first", LastComeFirst)
MANAGER = Component(
    kind="kv_cache_manager",
    name="my-paged",
    factory=make_manager,
    capabilities=frozenset(KV_CACHE_MANAGER.capabilities),
)
