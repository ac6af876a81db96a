"""The continuous-batching scheduler (Orca, vLLM) with chunked prefill (Sarathi-Serve)."""

from collections.abc import Collection, Iterable

from enginecore.interfaces import Outputs, Scheduler
from enginecore.messages import FinishReason, ModelRunnerOutput, SchedulerOutput, SchedulerStats
from enginecore.plugin import SchedulerContext
from enginecore.request import Request
from enginecore.scheduling.admission import Admission
from enginecore.scheduling.blocks import RequestBlocks
from enginecore.scheduling.checked_policy import CheckedPolicy
from enginecore.scheduling.planner import Planner
from enginecore.scheduling.policy import SchedulingPolicy
from enginecore.scheduling.queues import LiveRequests
from enginecore.scheduling.settlement import Settlement
from enginecore.scheduling.step import Outbox, PlanDraft, StepsInFlight
from enginecore.scheduling.transitions import Transitions


class ContinuousBatchingScheduler(Scheduler):
    """Budgets, chunked prefill, prefix hits, blocks, preemption, resumption and steps in flight.

    The policy decides which request is admitted, which gives way, and how a step is shared.
    """

    def __init__(self, policy: SchedulingPolicy, context: SchedulerContext) -> None:
        self._kv = context.kv_cache_manager
        self._live = LiveRequests(context.max_num_seqs)
        self._in_flight = StepsInFlight()
        self._draft = PlanDraft()
        self._outbox = Outbox()
        self._policy = CheckedPolicy(policy, context, self._live)
        self._blocks = RequestBlocks(self._kv, self._in_flight, in_order=context.executor.in_order)
        self._transitions = Transitions(
            self._live, self._policy, self._blocks, self._in_flight, self._draft, self._outbox
        )
        admission = Admission(self._live, self._policy, self._blocks, self._transitions)
        self._planner = Planner(
            context, self._live.running, self._policy, self._blocks, self._transitions, admission, self._draft
        )
        self._settlement = Settlement(self._in_flight, self._blocks, self._transitions, self._outbox)
        self._policy.start()

    def add_request(self, request: Request) -> None:
        self._transitions.add(request)

    def has_request(self, request_id: str) -> bool:
        return self._live.get(request_id) is not None

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            if state := self._live.get(request_id):
                self._transitions.finish(state, FinishReason.ABORT)

    def finish_requests(self, request_ids: Iterable[str], reason: FinishReason, error: str | None = None) -> None:
        for request_id in request_ids:
            if state := self._live.get(request_id):
                self._outbox.add_terminal(state.request, reason, error)
                self._transitions.finish(state, reason)

    def schedule(self) -> SchedulerOutput:
        step = self._policy.begin_step()
        self._transitions.begin_step()
        batch = self._planner.plan_step(step)
        plan = self._draft.build(batch)
        if not plan.is_empty:
            self._in_flight.append(batch)
        return plan

    def update_from_output(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> Outputs:
        self._settlement.settle_step(scheduled, output)
        return self._outbox.take()

    def take_outputs(self) -> Outputs:
        return self._outbox.take()

    def has_requests(self) -> bool:
        return bool(self._live or self._in_flight or self._outbox or self._draft.names_gone)

    @property
    def has_outputs(self) -> bool:
        return bool(self._outbox)

    @property
    def wake_time(self) -> float | None:
        return self._policy.wake_time

    @property
    def unfinished_requests(self) -> Collection[Request]:
        return [state.request for state in self._live]

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        if reset_running_requests and not self._blocks.are_written:
            for state in list(self._live.running):
                self._transitions.preempt(state)
        return self._kv.reset_prefix_cache()

    def get_stats(self) -> SchedulerStats:
        cache = self._kv.get_stats()
        return SchedulerStats(
            step=self._policy.view.step,
            num_running=len(self._live.running),
            num_waiting=len(self._live.waiting),
            num_preemptions=self._transitions.num_preemptions,
            num_blocks=cache.num_blocks,
            num_free_blocks=cache.num_free_blocks,
            num_cached_blocks=cache.num_cached_blocks,
            prefix_cache_queries=cache.queries,
            prefix_cache_hits=cache.hits,
        )

    def check_invariants(self) -> None:
        self._kv.check_invariants()
        self._live.check_invariants()
        self._blocks.check_invariants(self._live)
