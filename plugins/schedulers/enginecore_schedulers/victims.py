"""Victim choices: which request gives way if blocks or seats are short.

A victim is queued again and computes its tokens anew. The choice changes which requests wait, and
no token. `worst_rank` is the toolkit's own.
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
    """The request that arrived last gives way, so that the oldest is not interrupted."""

    def choose(self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView) -> RequestView:
        return max(candidates, key=_seq)


class LeastComputed(VictimChoice):
    """The request with the fewest computed tokens gives way; of equals, the worst rank."""

    def choose(self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView) -> RequestView:
        return min(reversed(candidates), key=_num_scheduled_tokens)


class Largest(VictimChoice):
    """The request with the most blocks gives way, so few have to; of equals, the worst rank."""

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
    Component(
        kind="victim",
        name="worst_rank",
        factory=_worst_rank,
        summary="The request that the scheduling policy ranks worst.",
    ),
    Component(
        kind="victim", name="newest", factory=_newest, summary="The request that arrived last, whatever its rank."
    ),
    Component(
        kind="victim",
        name="least_computed",
        factory=_least_computed,
        summary="The request with the fewest computed tokens.",
    ),
    Component(kind="victim", name="largest", factory=_largest, summary="The request that holds the most blocks."),
)
