"""Parts of an engine core, as settings choose them: scheduler, victim choice, KV cache manager,
eviction.
"""

from collections.abc import Callable
from typing import Any

from enginecore.assembly.components import choose_components
from enginecore.interfaces import EvictionOrder, KVCacheManager, Scheduler, VictimChoice
from enginecore.plugin import EvictionContext, KVCacheManagerContext, SchedulerContext, VictimContext
from enginecore.settings import Loaded


class Parts:
    """Makes the components that settings choose, as often as asked.

    Attributes:
        components: By name of their kind. A part that no component uses is left out.
    """

    def __init__(self, loaded: Loaded, **stand_ins: Callable[[Any], Any]) -> None:
        """`stand_ins`: by kind, what makes a part instead of the component that the settings
        choose.
        """
        self._chosen = choose_components(loaded)
        self.components = self._chosen.by_kind
        self._loaded = loaded
        self._stand_ins = stand_ins

    def with_scheduler(self, make: Callable[[SchedulerContext], Scheduler]) -> "Parts":
        """The same, with this scheduler."""
        return Parts(self._loaded, **{**self._stand_ins, "scheduler": make})

    def with_victim(self, victim: VictimChoice) -> "Parts":
        """The same, with this victim choice."""
        return Parts(self._loaded, **{**self._stand_ins, "victim": lambda context: victim})

    def with_eviction(self, order: EvictionOrder) -> "Parts":
        """The same, with this order of eviction."""
        return Parts(self._loaded, **{**self._stand_ins, "eviction": lambda context: order})

    def make_scheduler(self, context: SchedulerContext) -> Scheduler:
        """A scheduler."""
        made: Scheduler = self._build("scheduler", context)
        return made

    def make_kv_cache_manager(self, context: KVCacheManagerContext) -> KVCacheManager:
        """A KV cache manager."""
        made: KVCacheManager = self._build("kv_cache_manager", context)
        return made

    @property
    def make_victim(self) -> Callable[[VictimContext], VictimChoice] | None:
        """A victim choice, if the scheduler uses one."""
        return self._maker("victim")

    @property
    def make_eviction(self) -> Callable[[EvictionContext], EvictionOrder] | None:
        """An order of eviction, if the KV cache manager uses one."""
        return self._maker("eviction")

    def _maker(self, kind: str) -> Callable[[Any], Any] | None:
        return (lambda context: self._build(kind, context)) if kind in self.components else None

    def _build(self, kind: str, context: Any) -> Any:
        if kind in self._stand_ins:
            return self._stand_ins[kind](context)
        return self._chosen.build(kind, context)
