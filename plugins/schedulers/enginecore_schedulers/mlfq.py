"""Skip-join multi-level feedback queues."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Annotated

from pydantic import Field

from enginecore.scheduling import RequestView, SchedulerView, SchedulingPolicy
from enginecore_schedulers.arguments import Count, NotNegative, Positive
from enginecore_schedulers.candidates import WORST


class Mlfq(SchedulingPolicy):
    """Short outputs first, unpredicted: requests sink as they grow.

    FastServe's skip-join multi-level feedback queue (Wu et al., "Fast Distributed Inference Serving
    for Large Language Models", arXiv 2305.05920, 2023). A request sinks a level when it has used up
    the quantum of its own; each is twice as long as the one above. A long prompt joins further
    down, at the level whose quantum its prefill fits.

    FastServe keeps what it displaces in host memory; here it is computed again, so a request is
    displaced at most once for each level that it has sunk, and one that has waited for `patience`
    gets the next seat.

    Args:
        quantum: Output tokens of the first level.
        levels: How many levels there are; in the last one requests run to their end.
        prompt_weight: What a prompt token counts, in output tokens, when the level is found that a
            request joins.
        patience: Seconds that a request waits before it goes ahead of all levels.
    """

    preemptive = True

    def __init__(
        self,
        quantum: Count = 16,
        levels: Annotated[int, Field(ge=2, le=32, strict=True)] = 6,
        prompt_weight: NotNegative = 0.02,
        patience: Positive = 10.0,
    ) -> None:
        self._quanta = [quantum << level for level in range(levels - 1)]  # the last level has none
        self._ends = list(accumulate(self._quanta))
        self._prompt_weight = prompt_weight
        self._patience = patience

    def rank(self, request: RequestView, scheduler: SchedulerView) -> tuple[int, float]:
        spent = self._spent(request)
        return sum(spent >= end for end in self._ends), request.arrival

    def lease(self, request: RequestView, scheduler: SchedulerView) -> int | None:
        spent = self._spent(request)
        return next((end - spent for end in self._ends if spent < end), None)

    def lane(self, request: RequestView) -> int:
        return request.rank[0]  # type: ignore[no-any-return]

    def choose(self, scheduler: SchedulerView) -> RequestView:
        waiting = scheduler.waiting
        longest = min((waiting.head(level) for level in waiting.lanes()), key=lambda head: head.since)
        return longest if scheduler.now - longest.since >= self._patience else waiting.best()

    def may_give_way(
        self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView
    ) -> Sequence[RequestView]:
        worst = candidates[-WORST:]
        exposed = [other for other in worst if other.num_preemptions < other.rank[0]]
        if not needy.num_blocks:
            return [other for other in exposed if other.rank[0] > needy.rank[0]]
        return exposed or [max(worst, key=lambda other: other.seq)]  # the oldest keeps what it has

    def _spent(self, request: RequestView) -> int:
        """Output tokens, and those of the levels that it skipped."""
        work = self._prompt_weight * request.num_prompt_tokens
        return request.num_attained_tokens + sum(quantum for quantum in self._quanta if quantum < work)
