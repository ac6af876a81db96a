"""Policies that break a rule of the seam, or a promise that every policy keeps."""

import random
import time
from collections import Counter
from typing import ClassVar

from enginecore.scheduling import Delay, RequestView, SchedulerView, SchedulingPolicy, Split, policy_component
from enginecore_schedulers.fcfs import Fcfs
from enginecore_schedulers.priority import Priority
from tests.conformance.mutants.assembly import Patient, name_of, table


class _Oldest(SchedulingPolicy):
    """First come, first served: what these would be without their bug."""

    def rank(self, request, scheduler):
        return request.arrival


# -- answers that are out of range -------------------------------------------------------------------------------------


class ChoosesOneThatRuns(_Oldest):
    """Names the first that runs, if there is one, as the next to admit."""

    def choose(self, scheduler):
        return scheduler.running[0] if scheduler.running else scheduler.waiting.best()


class LeasesForNothing(_Oldest):
    """A request that has got its first tokens gets a lease of 0 tokens."""

    def lease(self, request, scheduler):
        return max(4 - request.num_attained_tokens, 0)


class RanksWithNan(_Oldest):
    """Progress per second since arrival, which is 0 / 0 for a request that has just arrived."""

    def rank(self, request, scheduler):
        waited = scheduler.now - request.arrival
        return request.num_output_tokens / waited if waited else float("nan")


class RanksMixed(_Oldest):
    """A number for requests without a tenant or deadline, a pair for others: they do not compare."""

    def rank(self, request, scheduler):
        return (request.deadline, request.arrival) if request.priority or request.tenant else request.arrival


class DelaysIntoThePast(Patient):
    """Puts requests off until the moment at which they arrived."""

    def choose(self, scheduler):
        chosen = super().choose(scheduler)
        return Delay(until=chosen.until - 0.01) if isinstance(chosen, Delay) else chosen


class DelaysForEver(Patient):
    """Puts requests off without an end."""

    def choose(self, scheduler):
        chosen = super().choose(scheduler)
        return Delay(until=float("inf")) if isinstance(chosen, Delay) else chosen


class SleepsWithoutAWord(_Oldest):
    """Waits for a second request to share the first batch with, and names no time."""

    def choose(self, scheduler):
        lonely = len(scheduler.waiting) == 1 and not scheduler.num_running
        return None if lonely else scheduler.waiting.best()


class SplitsIntoNothing(_Oldest):
    """Shares the budget among those that run: with many of them a chunk has no token."""

    def split(self, scheduler):
        most = scheduler.max_num_batched_tokens
        return Split(prefill=most, chunk=most // (1 + 8 * scheduler.num_running), admit=most)


class RefusesWithYes(_Oldest):
    """Refuses long prompts by True instead of a reason in words."""

    def admit(self, request, scheduler):
        return request.num_prompt_tokens > scheduler.max_num_batched_tokens or None


class SacrificesOneThatWaits(_Oldest):
    """Names the last that waits, if there is one, as the victim."""

    def victim(self, candidates, needy, scheduler):
        waiting = scheduler.waiting.first(10_000)
        return waiting[-1] if waiting else candidates[-1]


class DisplacesItsBetters(Priority):
    """An arrival displaces whoever has run longest, whatever its rank."""

    def victim(self, candidates, needy, scheduler):
        return min(scheduler.running, key=lambda request: request.since)


# -- books -------------------------------------------------------------------------------------------------------------


class ForgetsPreemptionsInItsBooks(_Oldest):
    """Counts seats by what it is told, and is deaf to preemptions: in the end it admits nobody."""

    def __init__(self) -> None:
        self._seated = 0

    def choose(self, scheduler):
        return scheduler.waiting.best() if self._seated < scheduler.max_num_seqs else None

    def admitted(self, request, scheduler):
        self._seated += 1

    def ended(self, request, scheduler):
        if request.num_blocks or request.num_output_tokens:
            self._seated -= 1


class KeepsBooksForEver(_Oldest):
    """Keeps books of every request that ever was."""

    def __init__(self) -> None:
        self._seen: dict[str, RequestView] = {}

    def added(self, request, scheduler):
        self._seen[request.request_id] = request


class NeedsHints(_Oldest):
    """Reads a hint that not every request brings."""

    def rank(self, request, scheduler):
        return request.hints["predicted_output_tokens"]


class WritesToTheView(_Oldest):
    """Raises the priority of who was preempted, in the view that it was given to read."""

    def preempted(self, request, scheduler):
        request.since = request.arrival
        request.request.max_total_tokens -= 1


class SharesBooksOfTheClass(_Oldest):
    """Its books are the class's: two engines in one process write to the same."""

    served: ClassVar[Counter[str]] = Counter()

    def rank(self, request, scheduler):
        self.served[request.tenant] += 1
        return self.served[request.tenant] // 3 % 2


# -- chance and time ---------------------------------------------------------------------------------------------------


class TossesACoin(_Oldest):
    """Orders requests by a generator without a seed."""

    def rank(self, request, scheduler):
        return random.random()  # the bug: two runs differ


class RanksByHash(_Oldest):
    """Orders requests by the hash of their ids, which is another one in every process."""

    def rank(self, request, scheduler):
        return hash(request.request_id)


class DelaysByTheWallClock(Patient):
    """Puts requests off until a time on a clock that is not the engine's."""

    def choose(self, scheduler):
        chosen = super().choose(scheduler)
        return Delay(until=scheduler.now + time.monotonic()) if isinstance(chosen, Delay) else chosen


# -- promises ----------------------------------------------------------------------------------------------------------


class LastComeFirstServed(_Oldest):
    """The newest first: under a steady stream the first wait for ever."""

    def rank(self, request, scheduler):
        return -request.seq


class ShortestForEver(_Oldest):
    """The shortest prompt first, without ageing, and without a word that long ones may starve."""

    def rank(self, request, scheduler):
        return request.num_prompt_tokens


class StopsAtTheFirstLongOne(_Oldest):
    """A prompt above the step's budget is never chosen, although prompts may be split."""

    def choose(self, scheduler):
        fitting = [request for request in scheduler.waiting.first(10_000)
                   if request.num_prompt_tokens <= scheduler.max_num_batched_tokens]  # fmt: skip
        return fitting[0] if fitting else None


class IgnoresItsSetting(Fcfs):
    """Takes `prefill_chunk_size`, and does not read it."""

    def split(self, scheduler: SchedulerView) -> Split:
        budget = scheduler.max_num_batched_tokens
        return Split(prefill=budget, chunk=budget, admit=budget)


class SwapsForEver(_Oldest):
    """Whoever has got least goes first and displaces those that have more: they displace each other in turn."""

    preemptive = True

    def rank(self, request, scheduler):
        return request.num_attained_tokens + request.num_preemptions

    def lease(self, request, scheduler):
        return 1


POLICIES: tuple[tuple[type[SchedulingPolicy], int | None], ...] = (
    (ChoosesOneThatRuns, None),
    (LeasesForNothing, None),
    (RanksWithNan, None),
    (RanksMixed, None),
    (DelaysIntoThePast, None),
    (DelaysForEver, None),
    (SleepsWithoutAWord, 33),
    (SplitsIntoNothing, 33),
    (RefusesWithYes, None),
    (SacrificesOneThatWaits, None),
    (DisplacesItsBetters, 15),
    (ForgetsPreemptionsInItsBooks, 33),
    (KeepsBooksForEver, 109),
    (NeedsHints, None),
    (WritesToTheView, None),
    (SharesBooksOfTheClass, 75),
    (TossesACoin, 73),
    (RanksByHash, 73),
    (DelaysByTheWallClock, 73),
    (LastComeFirstServed, 17),
    (ShortestForEver, 17),
    (StopsAtTheFirstLongOne, 8),
    (IgnoresItsSetting, 11),
    (SwapsForEver, 26),
)

MUTANTS = table(*((policy_component(name_of(policy), policy), case) for policy, case in POLICIES))

RANKS_BY_HASH = MUTANTS["ranks_by_hash"][0]
"""Where another process finds it."""
