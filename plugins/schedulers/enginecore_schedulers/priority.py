"""Strict classes of urgency, with ageing."""

from collections.abc import Sequence

from enginecore.scheduling import RequestView, SchedulerView, SchedulingPolicy
from enginecore_schedulers.arguments import NotNegative, Switch
from enginecore_schedulers.candidates import WORST


class Priority(SchedulingPolicy):
    """Urgent requests first; waiting requests gain on them.

    Priorities that grow linearly with the time waited (Kleinrock, "A delay dependent queue
    discipline", Naval Research Logistics Quarterly 11, 1964). All that wait gain alike, so their
    order never changes: `priority + ageing * arrival` is a key that is made once. A request
    displaces only those of a less urgent class, never its like.

    Args:
        ageing: Points of priority that a second of waiting is worth. A request is overtaken by one
            that is p points more urgent only if that one arrives within p / ageing seconds. 0:
            classes are strict, and may starve.
        preemptive: Whether an urgent request takes the seat or the memory of a less urgent one that
            runs.
    """

    def __init__(self, ageing: NotNegative = 0.1, preemptive: Switch = True) -> None:
        self._ageing = ageing
        self.preemptive = preemptive

    def rank(self, request: RequestView, scheduler: SchedulerView) -> float:
        return request.priority + self._ageing * request.arrival

    def may_give_way(
        self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView
    ) -> Sequence[RequestView]:
        if needy.num_blocks:
            return candidates
        return self._less_urgent(candidates[-WORST:], needy) or self._less_urgent(candidates, needy)

    @staticmethod
    def _less_urgent(candidates: Sequence[RequestView], needy: RequestView) -> Sequence[RequestView]:
        limit = needy.priority
        return [other for other in candidates if other.priority > limit]
