"""Shortest remaining processing time."""

from bisect import bisect_right
from collections.abc import Sequence

from enginecore.scheduling import RequestView, SchedulerView, SchedulingPolicy
from enginecore_schedulers.arguments import Count, NotNegative
from enginecore_schedulers.candidates import rank_of
from enginecore_schedulers.sjf import predicted


class Srpt(SchedulingPolicy):
    """Least predicted work left first, displacing longer jobs.

    The order that minimises mean latency where jobs may be interrupted at no cost (Schrage and
    Miller, "The queue M/G/1 with the shortest remaining processing time discipline", Operations
    Research 14, 1966). Here an interruption costs: a displaced request computes its tokens anew. So
    it takes `margin` tokens of difference, and what must be computed again counts as work.

    A request says its length by `hints["predicted_output_tokens"]`; one that does not counts with
    its `max_tokens`. One that has outlived its prediction is taken to last as long again as it has
    lasted beyond it.

    Args:
        ageing: Tokens that a second since arrival is worth; 0: long jobs may starve.
        prompt_weight: What a prompt token counts, in output tokens: prompts are computed many
            tokens at a time.
        margin: How many tokens shorter a job must be than one that it displaces.
        lease: After how many output tokens the rank of a running request follows what is left of
            it.
    """

    preemptive = True

    def __init__(
        self,
        ageing: NotNegative = 10.0,
        prompt_weight: NotNegative = 0.02,
        margin: NotNegative = 32.0,
        lease: Count = 16,
    ) -> None:
        self._ageing = ageing
        self._prompt_weight = prompt_weight
        self._margin = margin
        self._lease = lease

    def rank(self, request: RequestView, scheduler: SchedulerView) -> float:
        done = request.num_attained_tokens
        left = min(abs(predicted(request) - done), request.max_tokens - done)
        if not request.num_blocks:  # it waits: all that is known of it is to be computed
            left += self._prompt_weight * (request.num_prompt_tokens + done)
        return left + self._ageing * request.arrival

    def lease(self, request: RequestView, scheduler: SchedulerView) -> int:
        return self._lease

    def may_give_way(
        self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView
    ) -> Sequence[RequestView]:
        if needy.num_blocks:
            return candidates
        return candidates[bisect_right(candidates, needy.rank + self._margin, key=rank_of) :]
