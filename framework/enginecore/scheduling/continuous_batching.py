"""Continuous batching (Orca, vLLM) with chunked prefill (Sarathi-Serve), under the decisions of a policy."""

from collections.abc import Collection, Iterable

from enginecore.interfaces import Outputs, Scheduler
from enginecore.messages import FinishReason, ModelRunnerOutput, SchedulerOutput, SchedulerStats
from enginecore.plugin import SchedulerContext
from enginecore.request import Request
from enginecore.scheduling import audit
from enginecore.scheduling.lifecycle import Lifecycle
from enginecore.scheduling.planner import Planner
from enginecore.scheduling.policy import SchedulingPolicy
from enginecore.scheduling.settlement import Settlement


class ContinuousBatchingScheduler(Scheduler):
    """Budgets, chunked prefill, prefix hits, blocks, preemption, resumption and steps in flight.

    Who is admitted, who gives way and how a step is shared is the policy's affair.
    """

    def __init__(self, policy: SchedulingPolicy, context: SchedulerContext) -> None:
        self._kv = context.kv_cache_manager
        self._lives = Lifecycle(policy, context)
        self._planner = Planner(self._lives, context)
        self._settlement = Settlement(self._lives)
        self._max_num_seqs = context.max_num_seqs
        policy.start(self._lives.view)

    def add_request(self, request: Request) -> None:
        self._lives.add(request)

    def has_request(self, request_id: str) -> bool:
        return request_id in self._lives.states

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            if state := self._lives.states.get(request_id):
                self._lives.finish(state, FinishReason.ABORT)
        self._lives.running.settle()

    def finish_requests(self, request_ids: Iterable[str], reason: FinishReason, error: str | None = None) -> None:
        for request_id in request_ids:
            if state := self._lives.states.get(request_id):
                self._lives.outbox.add_terminal(state.request, reason, error)
                self._lives.finish(state, reason)
        self._lives.running.settle()

    def schedule(self) -> SchedulerOutput:
        lives = self._lives
        lives.begin_step()
        batch = self._planner.plan()
        plan = lives.draft.build(batch)
        if not plan.is_empty:
            lives.in_flight.append(batch)
        return plan

    def update_from_output(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> Outputs:
        self._settlement.settle(scheduled, output)
        return self._lives.outbox.take()

    def take_outputs(self) -> Outputs:
        return self._lives.outbox.take()

    def has_requests(self) -> bool:
        lives = self._lives
        return bool(lives.states or lives.in_flight or lives.outbox or lives.draft.has_news)

    @property
    def has_outputs(self) -> bool:
        return bool(self._lives.outbox)

    @property
    def wake_time(self) -> float | None:
        return self._lives.wake_time

    @property
    def unfinished_requests(self) -> Collection[Request]:
        return [state.request for state in self._lives.states.values()]

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        lives = self._lives
        if reset_running_requests and lives.frees_at_once:
            for state in list(lives.running):
                lives.preempt(state)
            lives.running.settle()
        return self._kv.reset_prefix_cache()

    def get_stats(self) -> SchedulerStats:
        cache = self._kv.get_stats()
        return SchedulerStats(
            step=self._lives.view.step,
            num_running=len(self._lives.running),
            num_waiting=len(self._lives.waiting),
            num_preemptions=self._lives.num_preemptions,
            num_blocks=cache.num_blocks,
            num_free_blocks=cache.num_free_blocks,
            num_cached_blocks=cache.num_cached_blocks,
            prefix_cache_queries=cache.queries,
            prefix_cache_hits=cache.hits,
        )

    def check_invariants(self) -> None:
        self._kv.check_invariants()
        audit.check(self._lives, self._kv, self._max_num_seqs)
