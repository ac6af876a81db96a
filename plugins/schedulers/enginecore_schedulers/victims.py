"""Victim choices: who gives way when memory or seats are short. `worst_rank` is the toolkit's own.

Whoever gives way is queued again and computes its tokens anew: under these, different requests wait, and no token
changes.
"""

from collections.abc import Sequence
from operator import attrgetter

from enginecore.interfaces import VictimChoice
from enginecore.plugin import Component, ComponentSettings, VictimContext
from enginecore.scheduling import RequestView, SchedulerView, WorstRank

_seq = attrgetter("seq")
_num_scheduled_tokens = attrgetter("num_scheduled_tokens")
_num_blocks = attrgetter("num_blocks")


class Newest(VictimChoice):
    """The request that arrived last gives way, whatever its rank, so that the oldest is never interrupted."""

    def choose(self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView) -> RequestView:
        return max(candidates, key=_seq)


class LeastComputed(VictimChoice):
    """The request for which the fewest tokens were computed gives way; among equals, the worst rank."""

    def choose(self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView) -> RequestView:
        return min(reversed(candidates), key=_num_scheduled_tokens)


class Largest(VictimChoice):
    """The request that holds the most blocks gives way, so that few have to; among equals, the worst rank."""

    def choose(self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView) -> RequestView:
        return max(reversed(candidates), key=_num_blocks)


def _worst_rank(settings: ComponentSettings, context: VictimContext) -> VictimChoice:
    return WorstRank()


def _newest(settings: ComponentSettings, context: VictimContext) -> VictimChoice:
    return Newest()


def _least_computed(settings: ComponentSettings, context: VictimContext) -> VictimChoice:
    return LeastComputed()


def _largest(settings: ComponentSettings, context: VictimContext) -> VictimChoice:
    return Largest()


COMPONENTS = (
    Component(kind="victim", name="worst_rank", factory=_worst_rank, summary="Ranked worst by the scheduling policy."),
    Component(kind="victim", name="newest", factory=_newest, summary="Arrived last, whatever its rank."),
    Component(kind="victim", name="least_computed", factory=_least_computed, summary="Throws the least work away."),
    Component(kind="victim", name="largest", factory=_largest, summary="Holds the most blocks."),
)
