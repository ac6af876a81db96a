"""Who gives way where neither the policy nor a component says otherwise."""

from collections.abc import Sequence

from enginecore.interfaces import RequestView, SchedulerView


class WorstRank:
    """The request that the policy ranks worst gives way, of equals the newest. Under fcfs that is the newest of all."""

    def choose(self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView) -> RequestView:
        return candidates[-1]
