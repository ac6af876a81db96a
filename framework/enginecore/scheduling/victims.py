"""Whom a preemption strikes, unless a component or the policy says otherwise."""

from collections.abc import Sequence
from operator import attrgetter

from enginecore.interfaces import RequestView, SchedulerView

_seq = attrgetter("seq")


class Newest:
    """The request that arrived last gives way, so that the oldest is never interrupted."""

    def choose(
        self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView
    ) -> RequestView | None:
        return max(candidates, key=_seq)
