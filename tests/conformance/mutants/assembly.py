"""How one bug gets into a component that is good otherwise: one class of its parts is exchanged."""

import re
from collections.abc import Callable
from typing import Any

from enginecore.errors import InvariantError
from enginecore.kinds import KV_CACHE_MANAGER, SCHEDULER
from enginecore.plugin import Component, KVCacheManagerContext, SchedulerContext
from enginecore.scheduling import ContinuousBatchingScheduler, Delay, RequestView, SchedulerView, SchedulingPolicy
from enginecore_kv_cache.paged import PagedKVCacheManager
from enginecore_schedulers.fcfs import Fcfs

Mutants = dict[str, tuple[Component, int | None]]
"""Components with one bug each, by name, with the field case that it comes from."""


class Assembled(ContinuousBatchingScheduler):
    """The toolkit's scheduler. It audits the KV cache alone, so that its own faults must be seen from outside."""

    def check_invariants(self) -> None:
        self._kv.check_invariants()

    def exchange(self, part: type) -> None:
        """Put this class in the place of the one that it is derived from."""
        parts = (self._live, self._live.running, self._policy, self._blocks, self._transitions, self._draft,
                 self._outbox, self._planner, self._planner._admission, self._settlement)  # fmt: skip
        _exchange(part, parts)


class Plain(PagedKVCacheManager):
    """The bundled KV cache manager with an audit that sees next to nothing."""

    def check_invariants(self) -> None:
        if not 0 <= self.num_free_blocks <= self.num_blocks:
            raise InvariantError(f"{self.num_free_blocks} of {self.num_blocks} blocks are free")

    def exchange(self, part: type) -> None:
        """Put this class in the place of the one that it is derived from."""
        _exchange(part, (self._pool, self._pool._index, self._keys))


def _exchange(part: type, objects: tuple[Any, ...]) -> None:
    (chosen,) = (thing for thing in objects if issubclass(part, type(thing)))
    chosen.__class__ = part


class SchedulerAssembly:
    """A factory: a scheduler over a policy, some of its parts exchanged."""

    def __init__(self, *parts: type, policy: Callable[[], SchedulingPolicy] = Fcfs) -> None:
        self._parts = parts
        self._policy = policy

    def __call__(self, settings: Any, context: SchedulerContext) -> Assembled:
        whole = next((part for part in self._parts if issubclass(part, Assembled)), Assembled)
        scheduler = whole(self._policy(), context)
        for part in self._parts:
            if part is not whole:
                scheduler.exchange(part)
        return scheduler


class ManagerAssembly:
    """A factory: a KV cache manager, some of its parts exchanged."""

    def __init__(self, *parts: type) -> None:
        self._parts = parts

    def __call__(self, settings: Any, context: KVCacheManagerContext) -> Plain:
        whole = next((part for part in self._parts if issubclass(part, Plain)), Plain)
        manager = whole(
            context.config,
            enable_prefix_caching=context.enable_prefix_caching,
            order=context.eviction,
            clock=context.clock,
        )
        for part in self._parts:
            if part is not whole:
                manager.exchange(part)
        return manager


class Patient(SchedulingPolicy):
    """First come, first served; nobody is admitted before it has waited for 10 ms."""

    def rank(self, request: RequestView, scheduler: SchedulerView) -> float:
        return request.arrival

    def choose(self, scheduler: SchedulerView) -> RequestView | Delay:
        oldest = scheduler.waiting.best()
        due = oldest.arrival + 0.01
        return Delay(until=due) if scheduler.now < due else oldest


def scheduler(
    *parts: type, policy: Callable[[], SchedulingPolicy] = Fcfs, name: str = "", without: frozenset[str] = frozenset()
) -> Component:
    """A scheduler component of these parts, named after the first."""
    return Component(
        kind="scheduler",
        name=name or name_of(parts[0]),
        factory=SchedulerAssembly(*parts, policy=policy),
        capabilities=frozenset(SCHEDULER.capabilities) - without,
        summary=summary_of(parts[0]) if parts else "",
    )


def manager(*parts: type, name: str = "") -> Component:
    """A KV cache manager component of these parts, named after the first."""
    return Component(
        kind="kv_cache_manager",
        name=name or name_of(parts[0]),
        factory=ManagerAssembly(*parts),
        capabilities=frozenset(KV_CACHE_MANAGER.capabilities),
        summary=summary_of(parts[0]) if parts else "",
    )


def name_of(part: type) -> str:
    """KeepsBlocksOnAbort: keeps_blocks_on_abort."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", part.__name__).lower()


def summary_of(part: type) -> str:
    """The first line of its docstring."""
    return (part.__doc__ or "").partition("\n")[0]


def table(*rows: tuple[Component, int | None]) -> Mutants:
    """By name. No name twice."""
    mutants = {component.name: (component, case) for component, case in rows}
    assert len(mutants) == len(rows)
    return mutants
