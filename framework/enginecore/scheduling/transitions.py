"""Transitions of requests from one phase to the next: the life of a request in the scheduler.

Phases, and who moves a request from one to the next:

    add --> WAITING -- admit --> PREFILL -- start_decode --> DECODE -- drain --> DRAIN
               ^                    |                          |                   |
               +----- preempt ------+--------------------------+-------------------+

    finish: from each of them to ENDED

    add           the scheduler   a new request, unless it can never run or is refused
    admit         Admission       the policy chose it: a seat, and blocks for all known tokens
    start_decode  Planner         its last known token is scheduled
    drain         Planner         its last token is scheduled: nothing is left to plan
    preempt       Admission       a waiting request that ranks before it takes its seat or blocks
                  Planner         a running request lacks a block
                  the scheduler   the prefix cache is reset: all that run, in DRAIN too
    finish        Settlement      its last token has come, or the executor failed on it
                  Admission       the policy refuses it when it is its turn
                  the scheduler   its client, or the engine, ends it

The tokens of a request, and the two cursors in them:

    0                                  num_prompt_tokens       num_tokens
    |-------------- prompt ------------------|----- output --------|
    |=== computed ====|~~~~ in flight ~~~~|.... to be scheduled ...|
                      |                   |
      num_computed_tokens                 num_scheduled_tokens

    WAITING   both are 0
    PREFILL   both begin behind the cached prefix; num_scheduled_tokens < num_tokens
    DECODE    num_scheduled_tokens >= num_tokens - 1, above it if the executor feeds its own tokens
    DRAIN     num_scheduled_tokens is at its end: the last token of a request is not computed

Planner advances num_scheduled_tokens, and Settlement num_computed_tokens when a step returns.
`preempt` takes both back to 0: what is in flight is stale, and its tokens come late.
"""

import logging

from enginecore.errors import InvalidRequestError
from enginecore.messages import BlockIds, FinishReason
from enginecore.request import Request, RequestStatus
from enginecore.scheduling.blocks import RequestBlocks
from enginecore.scheduling.checked_policy import CheckedPolicy
from enginecore.scheduling.queues import LiveRequests
from enginecore.scheduling.state import Phase, SchedulingState
from enginecore.scheduling.step import Outbox, PlanDraft, StepsInFlight

logger = logging.getLogger(__name__)


class Transitions:
    """Moves requests between phases, and keeps queues, blocks, plan and policy in step with that.

    No other part of the scheduler changes a phase, a queue, or who lives.

    Attributes:
        preempted_in_step: Requests that were preempted since the step began.
        num_preemptions: Since start.
    """

    def __init__(
        self,
        live: LiveRequests,
        policy: CheckedPolicy,
        blocks: RequestBlocks,
        in_flight: StepsInFlight,
        draft: PlanDraft,
        outbox: Outbox,
    ) -> None:
        self.preempted_in_step: set[SchedulingState] = set()
        self.num_preemptions = 0
        self._live = live
        self._waiting = live.waiting
        self._running = live.running
        self._policy = policy
        self._view = policy.view
        self._blocks = blocks
        self._in_flight = in_flight
        self._draft = draft
        self._outbox = outbox

    def begin_step(self) -> None:
        """Forget who was preempted in the step before."""
        self.preempted_in_step.clear()

    # -- in ----------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Make a new request WAITING, or end it at once with an error for its client.

        Raises:
            InvalidRequestError: a live request has its id.
        """
        if self._live.get(request.request_id):
            raise InvalidRequestError(f"request_id {request.request_id!r} belongs to a request that has not ended")
        capacity = self._blocks.capacity
        if request.num_prompt_tokens > capacity:
            refusal: str | None = (
                f"the prompt has {request.num_prompt_tokens} tokens, and the KV cache holds {capacity} "
                f"({self._blocks.num_blocks} blocks of {self._blocks.block_size})"
            )
        else:
            # the last token of a request needs no slot
            request.max_total_tokens = min(request.max_total_tokens, capacity + 1)
            refusal = self._introduce(SchedulingState(request))
        if refusal:
            self._outbox.add_terminal(request, FinishReason.ERROR, refusal)

    def _introduce(self, state: SchedulingState) -> str | None:
        """Queue a request that the policy does not refuse; else the reason."""
        self._live.add(state)
        self._view.refresh()
        try:
            refusal = self._policy.find_refusal(state)
            if not refusal:
                self._welcome(state)
        except Exception as error:  # a policy that fails on one request costs that request alone
            logger.exception("policy %s failed on request %r", self._policy.name, state.request_id)
            refusal = f"scheduling policy {self._policy.name} failed on this request: {error!r}"
        if refusal:
            self._live.remove(state)
        return refusal

    def _welcome(self, state: SchedulingState) -> None:
        self._policy.added(state)
        try:
            self._enqueue(state)
        except Exception:
            self._policy.ended(state)
            raise

    def _enqueue(self, state: SchedulingState) -> None:
        state.phase = Phase.WAITING
        state.since = self._view.now
        state.set_rank(self._policy.rank(state))
        state.lane = self._policy.lane(state)
        self._waiting.add(state)

    # -- on ----------------------------------------------------------------------------------------

    def admit(self, state: SchedulingState, block_ids: BlockIds, num_cached_tokens: int) -> None:
        """WAITING to PREFILL: it holds its blocks, in which a prefix is computed already."""
        request = state.request
        self._waiting.remove(state)
        request.num_scheduled_tokens = request.num_computed_tokens = num_cached_tokens
        if request.num_cached_tokens < 0:
            request.num_cached_tokens = num_cached_tokens
        request.status = RequestStatus.RUNNING
        state.phase = Phase.PREFILL
        state.since = self._view.now
        self._running.add(state)
        self._draft.admit(state, block_ids)
        self._policy.admitted(state)
        state.begin_lease(self._policy.lease(state))

    def start_decode(self, state: SchedulingState) -> None:
        """PREFILL to DECODE: its known tokens are all scheduled."""
        self._running.start_decode(state)
        state.phase = Phase.DECODE
        state.set_mark()

    def drain(self, state: SchedulingState) -> None:
        """DECODE to DRAIN: its last token is scheduled."""
        self._running.drain(state)
        state.phase = Phase.DRAIN

    # -- out ---------------------------------------------------------------------------------------

    def preempt(self, state: SchedulingState) -> None:
        """PREFILL, DECODE or DRAIN to WAITING. Its tokens in flight still arrive, late."""
        self._vacate(state)
        self._draft.preempt(state)
        state.request.preempt()
        state.request.status = RequestStatus.WAITING
        self.num_preemptions += 1
        self.preempted_in_step.add(state)
        self._policy.preempted(state)
        self._enqueue(state)

    def finish(self, state: SchedulingState, reason: FinishReason) -> None:
        """Any phase to ENDED. Its client hears of it from the caller."""
        if state.phase is Phase.WAITING:
            self._waiting.remove(state)
        else:
            self._vacate(state)
            self._draft.finish(state)
        state.phase = Phase.ENDED
        state.request.status = RequestStatus.FINISHED
        state.request.finish_reason = reason
        self._live.remove(state)
        self._policy.ended(state)

    def fail(self, state: SchedulingState, error: str) -> None:
        """Any phase to ENDED, with an error for its client."""
        self._outbox.add_terminal(state.request, FinishReason.ERROR, error)
        self.finish(state, FinishReason.ERROR)

    def _vacate(self, state: SchedulingState) -> None:
        self._in_flight.mark_stale(state)
        self._running.remove(state)
        self._blocks.release(state)
