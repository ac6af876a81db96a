"""Schedulers whose plans ask that steps be sampled later."""

from typing import Any

from enginecore.kinds import SCHEDULER
from enginecore.plugin import Component
from enginecore.scheduling import ContinuousBatchingScheduler, SchedulingPolicy


class ByArrival(SchedulingPolicy):
    def rank(self, request, scheduler):
        return request.arrival


class DeferringScheduler(ContinuousBatchingScheduler):
    """Defers the sampling of `most` steps of each three."""

    def __init__(self, policy: Any, context: Any, most: int) -> None:
        super().__init__(policy, context)
        self._most = most

    def schedule(self) -> Any:
        plan = super().schedule()
        plan.defer_sampling = plan.step % 3 < self._most
        return plan


def _component(name: str, most: int) -> Component:
    return Component(
        kind="scheduler",
        name=name,
        factory=lambda settings, context: DeferringScheduler(ByArrival(), context, most),
        capabilities=frozenset(SCHEDULER.capabilities),
    )


DEFERRING = (_component("defers-all", 3), _component("defers-some", 2))
