"""The one place where requests change phase: queued, seated, preempted, ended."""

import logging
import math

from enginecore.errors import InvalidRequestError, InvariantError
from enginecore.messages import BlockIds, FinishReason
from enginecore.plugin import SchedulerContext
from enginecore.request import Request, RequestStatus
from enginecore.scheduling.policy import Rank, RequestView, SchedulingPolicy
from enginecore.scheduling.queues import RunningRequests, WaitingQueue
from enginecore.scheduling.state import Phase, SchedulingState
from enginecore.scheduling.step import Outbox, PlanDraft, StepsInFlight
from enginecore.scheduling.view import StepView

logger = logging.getLogger(__name__)


class Lifecycle:
    """Owns all live requests, and keeps policy, KV cache manager and plan in step with what happens to them.

    Attributes:
        states: Live requests by id.
        waiting: Those without a seat.
        running: Those with one.
        in_flight: Submitted steps.
        draft: What workers must hear with the next plan.
        outbox: Outputs that are due.
        preempted_in_step: Who lost its blocks since the step began.
        wake_time: Until when the policy has put off the next admission; None: it has not.
        num_preemptions: Since start.
    """

    def __init__(self, policy: SchedulingPolicy, context: SchedulerContext) -> None:
        self.policy = policy
        self.kv = context.kv_cache_manager
        self.states: dict[str, SchedulingState] = {}
        self.waiting = WaitingQueue()
        self.running = RunningRequests()
        self.in_flight = StepsInFlight()
        self.draft = PlanDraft()
        self.outbox = Outbox()
        self.view = StepView(context, self.states, self.waiting, self.running)
        self.preempted_in_step: set[SchedulingState] = set()
        self.num_preemptions = 0
        self.wake_time: float | None = None
        self._in_order = context.executor.in_order

    def add(self, request: Request) -> None:
        """Queue it, or refuse it with a terminal output.

        Raises:
            InvalidRequestError: a live request has its id.
        """
        if request.request_id in self.states:
            raise InvalidRequestError(f"request_id {request.request_id!r} belongs to a request that has not ended")
        capacity = self.kv.num_blocks * self.kv.block_size
        if request.num_prompt_tokens > capacity:
            self.outbox.add_terminal(
                request,
                FinishReason.ERROR,
                f"the prompt has {request.num_prompt_tokens} tokens, and the KV cache holds {capacity} "
                f"({self.kv.num_blocks} blocks of {self.kv.block_size})",
            )
            return
        # the last token of a request needs no slot
        request.max_total_tokens = min(request.max_total_tokens, capacity + 1)
        self.view.refresh()
        state = self.states[request.request_id] = SchedulingState(request)
        try:
            refusal = self._introduce(state)
        except Exception as error:  # whatever a policy raises over one request costs that request alone
            logger.exception("policy %s failed on request %r", type(self.policy).__name__, request.request_id)
            refusal = f"scheduling policy {type(self.policy).__name__} failed on this request: {error!r}"
        if refusal:
            del self.states[request.request_id]
            self.outbox.add_terminal(request, FinishReason.ERROR, refusal)

    def _introduce(self, state: SchedulingState) -> str | None:
        """Queue a new request, unless the policy refuses it: then the reason."""
        if reason := self.refusal(state):
            return reason
        self.policy.added(state, self.view)
        try:
            self._queue(state)
        except Exception:
            self.policy.ended(state, self.view)
            raise
        return None

    def begin_step(self) -> None:
        """Nothing of the step before counts any more."""
        self.view.tick()
        self.preempted_in_step.clear()
        self.wake_time = None

    def delay(self, until: float) -> None:
        """The policy admits nobody before that time."""
        if not self.view.now < until < math.inf:
            raise InvariantError(
                f"{type(self.policy).__name__}.choose gave a Delay until {until}: it must be finite and after now, "
                f"which is {self.view.now}"
            )
        self.wake_time = until

    def seat(self, state: SchedulingState, block_ids: BlockIds, num_cached_tokens: int) -> None:
        """It has got its blocks, of which a prefix is computed already: from here on it runs."""
        request = state.request
        self.waiting.remove(state)
        request.num_scheduled_tokens = request.num_computed_tokens = num_cached_tokens
        if request.num_cached_tokens < 0:
            request.num_cached_tokens = num_cached_tokens
        request.status = RequestStatus.RUNNING
        state.since = self.view.now
        self.hold(state, block_ids)
        self.running.seat(state)
        self.draft.admit(state, block_ids)
        self.policy.admitted(state, self.view)
        self.lease(state)

    def hold(self, state: SchedulingState, block_ids: BlockIds) -> None:
        """Count blocks that it was given."""
        state.num_blocks += len(block_ids[0])
        state.num_slots = state.num_blocks * self.kv.block_size

    def lease(self, state: SchedulingState) -> None:
        """Begin a lease."""
        tokens = self.policy.lease(state, self.view)
        request = state.request
        start = max(request.num_scheduled_tokens, request.num_tokens - 1)
        if tokens is not None and tokens < 1:
            raise InvariantError(f"{type(self.policy).__name__}.lease gave {tokens}: at least 1, or None for never")
        state.begin_lease(None if tokens is None else start + tokens)

    def rerank(self, state: SchedulingState) -> None:
        """Its lease is over: ask again."""
        self.running.rerank(state, self._rank(state))
        self.lease(state)

    def preempt(self, state: SchedulingState) -> None:
        """Take its seat and blocks; it is queued again. Its tokens in flight still arrive."""
        request = state.request
        self._vacate(state, finished=False)
        request.preempt()
        request.status = RequestStatus.WAITING
        self.num_preemptions += 1
        self.preempted_in_step.add(state)
        self.policy.preempted(state, self.view)
        self._queue(state)

    def finish(self, state: SchedulingState, reason: FinishReason) -> None:
        """It is over, wherever it stands. Whoever calls says so to the client."""
        if state.phase is Phase.WAITING:
            self.waiting.remove(state)
        else:
            self._vacate(state, finished=True)
        state.phase = Phase.ENDED
        state.request.status = RequestStatus.FINISHED
        state.request.finish_reason = reason
        del self.states[state.request_id]
        self.policy.ended(state, self.view)

    def fail(self, state: SchedulingState, error: str) -> None:
        """End it with an error that its client is told."""
        self.outbox.add_terminal(state.request, FinishReason.ERROR, error)
        self.finish(state, FinishReason.ERROR)

    def refusal(self, state: SchedulingState) -> str | None:
        """Why the policy refuses it, if it does."""
        reason = self.policy.admit(state, self.view)
        if reason is not None and not isinstance(reason, str):
            raise InvariantError(f"{type(self.policy).__name__}.admit gave {reason!r}: a reason in words, or None")
        return reason

    def find(self, named: RequestView, decision: str) -> SchedulingState:
        """The state that a policy named; only the id counts, so that it may hold proxies.

        Raises:
            InvariantError: there is no such request.
        """
        state = self.states.get(named.request_id)
        if state is None:
            raise InvariantError(f"{type(self.policy).__name__}.{decision} named {named.request_id!r}: no such request")
        return state

    @property
    def frees_at_once(self) -> bool:
        """Whether blocks go back to the pool when they are given up; else steps in flight may write to them."""
        return self._in_order or not self.in_flight

    def free(self, state: SchedulingState) -> None:
        """Give its blocks back to the pool."""
        self.kv.free(state.request)
        state.num_blocks = state.num_slots = 0

    def _queue(self, state: SchedulingState) -> None:
        state.phase = Phase.WAITING
        state.since = self.view.now
        state.set_rank(self._rank(state))
        state.lane = self.policy.lane(state)
        self.waiting.add(state)

    def _rank(self, state: SchedulingState) -> Rank:
        rank = self.policy.rank(state, self.view)
        parts = rank if isinstance(rank, tuple) else (rank,)
        if rank != rank or any([part != part for part in parts]):  # a tuple of NaN may equal itself
            raise InvariantError(f"{type(self.policy).__name__}.rank gave {rank!r}: a rank must be comparable, not NaN")
        return rank

    def _vacate(self, state: SchedulingState, *, finished: bool) -> None:
        self.in_flight.mark_stale(state)
        self.running.remove(state)
        self.draft.remove(state, finished=finished)
        if self.frees_at_once:
            self.free(state)
        else:
            self.in_flight[-1].unfreed.append(state)
