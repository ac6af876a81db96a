"""Earliest deadline first."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal

from enginecore.scheduling import RequestView, SchedulerView, SchedulingPolicy
from enginecore_schedulers.arguments import Count, NotNegative, Positive
from enginecore_schedulers.candidates import rank_of

LEASE = 16
"""Output tokens after which the deadline of a running request moves on."""

MEMORY = 0.9
"""How much of what was known of the time per prompt token outlives a new observation."""


class Edf(SchedulingPolicy):
    """Earliest deadline first; late requests stand back.

    Or they are refused: see `missed`.

    Earliest deadline first (Liu and Layland, "Scheduling Algorithms for Multiprogramming in a
    Hard-Real-Time Environment", Journal of the ACM 20, 1973), by the latest moment at which work
    must begin, so that a long prompt counts as more pressing. Under overload that order alone
    fails: it serves best what is too late already. So requests that are late are left behind, but
    for one admission in `late_every`.

    The first token is due at the request's `deadline`, every later one `hints["itl"]` seconds after
    the one before: a running request that is well ahead of that gives way. How long a prompt takes
    is learnt from those that ran.

    Args:
        ttft: Seconds after arrival at which the first token is due of a request without a deadline.
        itl: Seconds between tokens for a request without that hint.
        missed: Fate of a request that has not run and cannot meet its deadline: "demote"
            leaves it waiting behind those that can, "refuse" ends it with an error that says so.
        late_every: One admission in so many goes to those that are late, the most overdue first.
        slack: A request displaces another when less than so many seconds are left to begin, and
            only one that has more.
    """

    preemptive = True

    def __init__(
        self,
        ttft: Positive = 10.0,
        itl: Positive = 0.2,
        missed: Literal["demote", "refuse"] = "demote",
        late_every: Count = 8,
        slack: NotNegative = 0.5,
    ) -> None:
        self._ttft = ttft
        self._itl = itl
        self._missed = missed
        self._late_every = late_every
        self._slack = slack
        self._token_time = 0.0  # seconds from a seat to the first token, per prompt token
        self._num_on_time = 0  # admissions since the last one that was late

    def rank(self, request: RequestView, scheduler: SchedulerView) -> float:
        """The latest moment to begin, or to begin anew."""
        due = self._due(request) + request.hints.get("itl", self._itl) * request.num_attained_tokens
        return due - self._token_time * (request.num_prompt_tokens + request.num_output_tokens)

    def lease(self, request: RequestView, scheduler: SchedulerView) -> int:
        if not request.num_attained_tokens:
            return 1
        if request.num_attained_tokens == 1 and not request.num_preemptions:
            seen = (scheduler.now - request.since) / request.num_prompt_tokens
            self._token_time = MEMORY * self._token_time + (1 - MEMORY) * seen
        return LEASE

    def choose(self, scheduler: SchedulerView) -> RequestView:
        first = scheduler.waiting.best()
        if first.rank > scheduler.now or (self._missed == "refuse" and not first.num_preemptions):
            return first
        on_time = scheduler.waiting.first(1, after=scheduler.now)
        return on_time[0] if on_time and self._num_on_time + 1 < self._late_every else first

    def admit(self, request: RequestView, scheduler: SchedulerView) -> str | None:
        if self._missed != "refuse" or self.rank(request, scheduler) > scheduler.now:
            return None
        return (
            f"its first token is due {self._due(request) - scheduler.now:.3f} s from now, and a prompt of "
            f"{request.num_prompt_tokens} tokens takes about {self._token_time * request.num_prompt_tokens:.3f} s: "
            "the deadline cannot be met"
        )

    def admitted(self, request: RequestView, scheduler: SchedulerView) -> None:
        self._num_on_time = self._num_on_time + 1 if request.rank > scheduler.now else 0

    def may_give_way(
        self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView
    ) -> Sequence[RequestView]:
        if needy.num_blocks:
            return candidates
        pressing = scheduler.now + self._slack
        if not scheduler.now < needy.rank <= pressing:
            return ()
        return candidates[bisect_right(candidates, pressing, key=rank_of) :]

    def _due(self, request: RequestView) -> float:
        return request.arrival + self._ttft if request.deadline is None else request.deadline
