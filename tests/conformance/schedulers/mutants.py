"""Schedulers with one bug each, and the check that is there for it."""

# pyright: reportAttributeAccessIssue=false

import itertools
from dataclasses import replace
from random import Random
from typing import Any

import msgspec

from enginecore.errors import InvalidRequestError, InvariantError
from enginecore.interfaces import CachedPrefix, KVCacheManager
from enginecore.kinds import SCHEDULER
from enginecore.messages import EngineCoreOutput, FinishReason, SchedulerOutput
from enginecore.plugin import Component, ComponentSettings
from enginecore.scheduling import ContinuousBatchingScheduler, SchedulingPolicy, policy_component
from enginecore_conformance.chaos import Chaos
from enginecore_schedulers.fcfs import Fcfs
from enginecore_schedulers.priority import Priority
from tests.conformance.mutants import SCHEDULERS
from tests.forwarding import forwarding

MUTANTS: dict[str, Component] = {}
"""By the check that catches it, and a number if there are several."""


def add(caught_by: str, make: Any, settings: Any = ComponentSettings) -> None:
    names = itertools.chain([caught_by], (f"{caught_by}-{number}" for number in itertools.count(2)))
    name = next(name for name in names if name not in MUTANTS)
    MUTANTS[name] = Component(
        kind="scheduler",
        name=name.replace("_", "-"),
        factory=lambda settings, context: make(context),
        settings=settings,
        capabilities=frozenset(SCHEDULER.capabilities),
    )


def mutant(caught_by: str) -> Any:
    """A subclass of the toolkit's scheduler."""

    def made(cls: Any) -> Any:
        add(caught_by, lambda context: cls(Fcfs(), context))
        return cls

    return made


def blind(caught_by: str, **changes: Any) -> None:
    """A scheduler that is told something else than what is so."""
    add(caught_by, lambda context: ContinuousBatchingScheduler(Fcfs(), replace(context, **changes)))


def told_wrong(caught_by: str, policy: Any = Fcfs) -> Any:
    """One whose KV cache manager is behind a proxy with a bug."""

    def made(proxy: Any) -> Any:
        def make(context: Any) -> ContinuousBatchingScheduler:
            manager = proxy(context.kv_cache_manager)
            return ContinuousBatchingScheduler(policy(), replace(context, kv_cache_manager=manager))

        add(caught_by, make)
        return proxy

    return made


@forwarding(KVCacheManager, to="manager")
class Proxy(KVCacheManager):
    def __init__(self, manager: Any) -> None:
        self.manager = manager

    def __getattr__(self, name: str) -> Any:
        return getattr(self.manager, name)


class Careless(ContinuousBatchingScheduler):
    """One that does not audit itself."""

    def check_invariants(self) -> None:
        pass


# -- plans -------------------------------------------------------------------------------------------------------

blind("budget_is_kept", max_num_batched_tokens=1000)
blind("budget_is_kept", max_num_seqs=1000)
blind("prompts_stay_whole", enable_chunked_prefill=True)


@mutant("each_request_once")
class NamesNewOnesTwice(ContinuousBatchingScheduler):
    def schedule(self) -> SchedulerOutput:
        plan = super().schedule()
        return msgspec.structs.replace(plan, new_requests=[*plan.new_requests, *plan.new_requests[:1]])


@mutant("spans_are_contiguous")
class DeltasLagBehind(ContinuousBatchingScheduler):
    def schedule(self) -> SchedulerOutput:
        plan = super().schedule()
        for delta in plan.deltas:
            delta.num_computed_tokens -= 1
        return plan


@mutant("spans_are_contiguous")
class CountsWhatIsInFlightAsComputed(ContinuousBatchingScheduler):
    def update_from_output(self, scheduled: Any, output: Any) -> Any:
        outputs = super().update_from_output(scheduled, output)
        for request in self.unfinished_requests:
            request.num_computed_tokens = request.num_scheduled_tokens
        return outputs


def _feeds(context: Any) -> Any:
    return ContinuousBatchingScheduler(Fcfs(), replace(context, executor=replace(context.executor, feeds_tokens=True)))


add("only_known_tokens_are_scheduled", _feeds)


@mutant("tokens_have_slots")
class NeverGrows(ContinuousBatchingScheduler):
    def __init__(self, policy: Any, context: Any) -> None:
        super().__init__(policy, context)
        planner: Any = self._planner
        planner._grow = lambda state: True


@mutant("workers_are_told_what_is")
class ForgetsItsOutput(ContinuousBatchingScheduler):
    def schedule(self) -> SchedulerOutput:
        plan = super().schedule()
        for new in plan.new_requests:
            new.token_ids = new.token_ids[: new.num_prompt_tokens]
        return plan


@mutant("workers_are_told_what_is")
class KeepsNewBlocksToItself(ContinuousBatchingScheduler):
    def schedule(self) -> SchedulerOutput:
        return msgspec.structs.replace(super().schedule(), deltas=[])


@mutant("workers_hear_of_the_gone")
class SpeaksOfTheGoneOnlyWithTokens(ContinuousBatchingScheduler):
    def schedule(self) -> SchedulerOutput:
        plan = super().schedule()
        if not plan.num_scheduled_tokens:
            plan = msgspec.structs.replace(plan, finished_ids=[])
        return plan


# -- the KV cache ------------------------------------------------------------------------------------------------


@told_wrong("cached_prefixes_are_fresh", Priority)
class KeepsPrefixes(Proxy):
    def __init__(self, manager: Any) -> None:
        super().__init__(manager)
        self.known: dict[Any, CachedPrefix] = {}

    def get_computed_blocks(self, request: Any) -> CachedPrefix:
        key = request.request_id, request.num_preemptions
        if key not in self.known:
            self.known[key] = self.manager.get_computed_blocks(request)
        return self.known[key]


@told_wrong("only_what_is_written_is_published")
class PublishesAtOnce(Proxy):
    def allocate_slots(self, request: Any, num_tokens: int, prefix: Any = None) -> Any:
        added = self.manager.allocate_slots(request, num_tokens, prefix)
        if added is not None:
            self.manager.cache_blocks(request, min(num_tokens, request.num_tokens))
        return added


@told_wrong("prefix_hits_are_used")
class NeverLooksUp(Proxy):
    def get_computed_blocks(self, request: Any) -> CachedPrefix:
        return CachedPrefix(([],), 0)


@mutant("nothing_is_left")
class LeaksWhatIsAborted(Careless):
    """Whoever is aborted before a token has come keeps the blocks."""

    def abort_requests(self, request_ids: Any) -> None:
        blocks: Any = self._blocks
        manager, blocks._manager = blocks._manager, _NeverFrees(blocks._manager)  # type: ignore[abstract]
        super().abort_requests(request_ids)
        blocks._manager = manager


class _NeverFrees(Proxy):
    def free(self, request: Any) -> None:
        pass


def _in_order(context: Any) -> Any:
    return ContinuousBatchingScheduler(Fcfs(), replace(context, executor=replace(context.executor, in_order=True)))


add("policy_does_not_change_tokens", _in_order)


# -- what is said ------------------------------------------------------------------------------------------------


@mutant("policy_does_not_change_tokens")
class MixesClientsUp(ContinuousBatchingScheduler):
    def update_from_output(self, scheduled: Any, output: Any) -> Any:
        rows = list(reversed(output.sampled_token_ids))
        return super().update_from_output(scheduled, msgspec.structs.replace(output, sampled_token_ids=rows))


@mutant("one_last_word")
class SaysNothingAtTheEnd(ContinuousBatchingScheduler):
    def finish_requests(self, request_ids: Any, reason: Any, error: Any = None) -> None:
        self.abort_requests(request_ids)


@mutant("one_last_word")
class ConfirmsAborts(ContinuousBatchingScheduler):
    def abort_requests(self, request_ids: Any) -> None:
        self.finish_requests(request_ids, FinishReason.ABORT)


@mutant("one_last_word")
class OneClientOnly(ContinuousBatchingScheduler):
    def update_from_output(self, scheduled: Any, output: Any) -> Any:
        outputs = super().update_from_output(scheduled, output)
        return {0: [out for due in outputs.values() for out in due]} if outputs else outputs


@mutant("late_tokens_are_kept")
class DropsLateTokens(ContinuousBatchingScheduler):
    def __init__(self, policy: Any, context: Any) -> None:
        super().__init__(policy, context)
        settlement: Any = self._settlement
        accept = settlement._accept

        def drop(state: Any, sampled: Any, is_stale: bool, logprobs: Any) -> None:
            if is_stale and state.request.num_late_tokens:
                state.request.num_late_tokens -= 1
            else:
                accept(state, sampled, is_stale, logprobs)

        settlement._accept = drop


@mutant("policy_does_not_change_tokens")
class ResumesTooEarly(Careless):
    def schedule(self) -> SchedulerOutput:
        for request in self.unfinished_requests:
            request.num_late_tokens = 0
        return super().schedule()


@mutant("faults_stay_with_their_request")
class OneFaultEndsAll(ContinuousBatchingScheduler):
    def update_from_output(self, scheduled: Any, output: Any) -> Any:
        if output.errors:
            error = next(iter(output.errors.values()))
            output = msgspec.structs.replace(output, errors=dict.fromkeys(scheduled.num_scheduled_tokens, error))
        return super().update_from_output(scheduled, output)


@mutant("faults_stay_with_their_request")
class SkipsMissingRows(ContinuousBatchingScheduler):
    def __init__(self, policy: Any, context: Any) -> None:
        super().__init__(policy, context)
        settlement: Any = self._settlement
        accept = settlement._accept
        settlement._accept = lambda state, sampled, *rest: accept(state, sampled, *rest) if sampled else None


@mutant("cached_tokens_are_told_once")
class TellsHitsEachTime(ContinuousBatchingScheduler):
    def update_from_output(self, scheduled: Any, output: Any) -> Any:
        live = {request.request_id: request for request in self.unfinished_requests}
        outputs = super().update_from_output(scheduled, output)
        for out in itertools.chain(*outputs.values()):
            if out.new_token_ids:
                out.num_cached_tokens = max(live[out.request_id].num_cached_tokens, 0)
        return outputs


@mutant("ids_are_unique_among_the_live")
class NeverTakesAnIdAgain(ContinuousBatchingScheduler):
    def add_request(self, request: Any) -> None:
        seen = self.__dict__.setdefault("seen", set())
        if request.request_id in seen:
            raise InvalidRequestError("seen before")
        seen.add(request.request_id)
        super().add_request(request)


@mutant("cancelled_requests_end_at_once")
class SparesTheRunning(ContinuousBatchingScheduler):
    def abort_requests(self, request_ids: Any) -> None:
        running = {request.request_id for request in self.unfinished_requests if request.num_scheduled_tokens}
        super().abort_requests([request_id for request_id in request_ids if request_id not in running])


@mutant("unfinished_requests_are_listed")
class LatestFirst(ContinuousBatchingScheduler):
    @property
    def unfinished_requests(self) -> Any:
        return list(reversed(list(super().unfinished_requests)))


@mutant("has_requests_is_true")
class ForgetsToTell(ContinuousBatchingScheduler):
    def has_requests(self) -> bool:
        return bool(self.unfinished_requests)


@mutant("has_outputs_is_true")
class HidesOutputs(ContinuousBatchingScheduler):
    """Of requests that end without a step."""

    @property
    def has_outputs(self) -> bool:
        return False


@mutant("progress_or_a_wake_time")
class SleepsForEver(ContinuousBatchingScheduler):
    """Once somebody was preempted nobody is admitted while few blocks are free."""

    def schedule(self) -> SchedulerOutput:
        stats = self.get_stats()
        if not stats.num_running and stats.num_preemptions and not self.has_news:
            return SchedulerOutput(step=stats.step)
        return super().schedule()

    @property
    def has_news(self) -> bool:
        return self._draft.names_gone


@mutant("reset_forgets_all_or_nothing")
class SaysDone(ContinuousBatchingScheduler):
    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        super().reset_prefix_cache(reset_running_requests)
        return True


@mutant("stats_agree")
class CountsItselfTwice(ContinuousBatchingScheduler):
    def get_stats(self) -> Any:
        stats = super().get_stats()
        stats.num_waiting += stats.num_preemptions
        return stats


@mutant("its_own_books_hold")
class LosesCount(ContinuousBatchingScheduler):
    def check_invariants(self) -> None:
        super().check_invariants()
        if self.get_stats().num_preemptions > 1:
            raise InvariantError("2 + 2 = 5")


@mutant("nothing_is_raised")
class KnowsEverybody(ContinuousBatchingScheduler):
    def abort_requests(self, request_ids: Any) -> None:
        live = {request.request_id: request for request in self.unfinished_requests}
        super().abort_requests([live[request_id].request_id for request_id in request_ids])


# -- abilities ---------------------------------------------------------------------------------------------------


@mutant("long_prompts_are_split")
class RefusesLongPrompts(ContinuousBatchingScheduler):
    def __init__(self, policy: Any, context: Any) -> None:
        super().__init__(policy, context)
        self.most = context.max_num_batched_tokens

    def add_request(self, request: Any) -> None:
        super().add_request(request)
        if request.num_prompt_tokens > self.most:
            self.finish_requests([request.request_id], FinishReason.ERROR, "too long for a step")


@mutant("batches_overlap")
class OneAtATime(ContinuousBatchingScheduler):
    def schedule(self) -> SchedulerOutput:
        return super().schedule() if not self._in_flight else SchedulerOutput(step=self._policy.view.step)


blind("the_victim_component_decides", victim=None)


@mutant("impossible_requests_are_refused")
class SaysNo(ContinuousBatchingScheduler):
    def take_outputs(self) -> Any:
        outputs = super().take_outputs()
        for out in itertools.chain(*outputs.values()):
            if out.error:
                out.error = "no"
        return outputs


@mutant("impossible_requests_are_refused")
class LetsThemWait(ContinuousBatchingScheduler):
    def add_request(self, request: Any) -> None:
        super().add_request(request)
        self.late: list[EngineCoreOutput] = []
        self._outbox.take()


class Misspells(SchedulingPolicy):
    """What a policy raises costs the request that it raises it over: here every one."""

    def rank(self, request: Any, scheduler: Any) -> float:
        rank: float = scheduler.nwo
        return rank


add("plain_requests_are_served", lambda context: ContinuousBatchingScheduler(Misspells(), context))
MISSPELT = MUTANTS["plain_requests_are_served"]


@mutant("lone_requests_may_fill_the_pool")
class GoesRoundInCircles(ContinuousBatchingScheduler):
    """A request that outgrows the pool evicts itself, for ever."""

    def add_request(self, request: Any) -> None:
        most = request.max_total_tokens
        super().add_request(request)
        request.max_total_tokens = most
        if state := self._live.get(request.request_id):
            state.last = most - 1


class Polite(SchedulingPolicy):
    """Whoever has just got a token gives way."""

    preemptive = True

    def __init__(self) -> None:
        self.turn = 0

    def rank(self, request: Any, scheduler: Any) -> int:
        self.turn += 1
        return self.turn

    def lease(self, request: Any, scheduler: Any) -> int:
        return 1


class LastComeFirst(SchedulingPolicy):
    def rank(self, request: Any, scheduler: Any) -> Any:
        return -request.seq


class Dice(SchedulingPolicy):
    def __init__(self) -> None:
        self.random = Random()

    def rank(self, request: Any, scheduler: Any) -> float:
        return self.random.random()


class Turns(SchedulingPolicy):
    turn = 0

    def rank(self, request: Any, scheduler: Any) -> int:
        Turns.turn += 1
        return Turns.turn % 3


class Superstitious(SchedulingPolicy):
    def rank(self, request: Any, scheduler: Any) -> int:
        return hash(str(request.request_id)) % 7


class Archivist(Fcfs):
    def __init__(self) -> None:
        super().__init__()
        self.archive: list[Any] = []

    def ended(self, request: Any, scheduler: Any) -> None:
        self.archive.append((request.request_id, request.num_output_tokens))


class Deaf(Fcfs):
    def __init__(self, patience: float = 1.0) -> None:
        super().__init__()


for _caught_by, _policy in (
    ("long_prompts_do_not_thrash", Polite),
    ("wait_is_bounded", LastComeFirst),
    ("same_arrivals_give_the_same_plans", Dice),
    ("engines_share_nothing", Turns),
    ("processes_plan_alike", Superstitious),
    ("nothing_is_kept_of_the_ended", Archivist),
    ("setting_patience_is_honoured", Deaf),
):
    MUTANTS[_caught_by] = policy_component(_caught_by.replace("_", "-"), _policy)

for _caught_by, _name in (
    ("preemptions_are_counted", "counts_no_preemptions"),
    ("real_time_does_not_count", "delays_by_the_wall_clock"),
    ("light_requests_do_not_starve_a_heavy_one", "skips_the_heavy_for_ever"),
):
    MUTANTS[_caught_by] = SCHEDULERS[_name][0]

PLAIN = policy_component("plain", Fcfs)
CHAOS = policy_component("chaos", lambda seed=0: Chaos(seed), settings=ComponentSettings)
SUPERSTITIOUS = MUTANTS["processes_plan_alike"]
