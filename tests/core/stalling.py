"""A policy that admits nobody."""

from enginecore.scheduling import RequestView, SchedulerView, SchedulingPolicy


class Stalling(SchedulingPolicy):
    """Chooses nobody, ever."""

    def rank(self, request: RequestView, scheduler: SchedulerView) -> int:
        return 0

    def choose(self, scheduler: SchedulerView) -> RequestView | None:
        return None
