"""The batch of the next step: which requests run in it, with how many tokens each."""

from enginecore.plugin import SchedulerContext
from enginecore.scheduling.admission import Admission
from enginecore.scheduling.blocks import RequestBlocks
from enginecore.scheduling.checked_policy import CheckedPolicy
from enginecore.scheduling.policy import Split
from enginecore.scheduling.queues import RunningRequests
from enginecore.scheduling.state import Phase, SchedulingState
from enginecore.scheduling.step import Batch, Chunk, PlanDraft
from enginecore.scheduling.transitions import Transitions


class Planner:
    """Makes the batch of a step: blocks for decodes, then admissions, then tokens.

    What was given out in a step is not taken back in it, but for the blocks of victims.
    """

    def __init__(
        self,
        context: SchedulerContext,
        running: RunningRequests,
        policy: CheckedPolicy,
        blocks: RequestBlocks,
        transitions: Transitions,
        admission: Admission,
        draft: PlanDraft,
    ) -> None:
        self._running = running
        self._policy = policy
        self._blocks = blocks
        self._transitions = transitions
        self._admission = admission
        self._draft = draft
        self._budget = context.max_num_batched_tokens
        self._chunked = context.enable_chunked_prefill
        self._max_batches = context.executor.max_concurrent_batches
        self._waits_for_tokens = self._max_batches > 1 and not context.executor.feeds_tokens

    def plan_step(self, step: int) -> Batch:
        """The batch of the step that has just begun. Advances `num_scheduled_tokens`."""
        split = self._split()
        decodes: list[SchedulingState] = []
        chunks: list[Chunk] = []
        if split.first == "decode":
            ready = self._ready_decodes()
            if not self._transitions.preempted_in_step:
                self._admit(split, self._budget - len(ready))
            decodes = self._decodes(ready, self._budget)
            if split.mix or not decodes:
                chunks = self._chunks(split, self._budget - len(decodes))
        else:
            self._admit(split, self._budget)
            prefills = self._running.prefilling and split.prefill
            ready = self._ready_decodes() if split.mix or not prefills else []
            chunks = self._chunks(split, self._budget)
            decodes = self._decodes(ready, self._budget - sum(chunk.num_tokens for chunk in chunks))
        return Batch(step, decodes, chunks)

    def _split(self) -> Split:
        split = self._policy.split()
        if not self._chunked:
            # a prompt that may not be split needs the whole budget, so it goes before decodes
            split = split._replace(first="prefill", prefill=self._budget, chunk=self._budget)
        return split

    def _admit(self, split: Split, budget: int) -> None:
        self._admission.admit_requests(split, min(split.prefill, budget))

    # -- decodes -----------------------------------------------------------------------------------

    def _ready_decodes(self) -> list[SchedulingState]:
        """Decodes that can run, with a slot for their next token. Preempts if blocks are short."""
        ready = list(self._running.decoding)
        if self._waits_for_tokens:
            # a request waits for its token; the others are shared out over the batches in flight
            share = -(-len(ready) // self._max_batches)
            ready = [state for state in ready if not state.request.num_sampling_tokens][:share]
        due = [state for state in ready if state.request.num_scheduled_tokens == state.mark]
        if not due:
            return ready
        without = {state for state in due if not self._attend(state)}
        return [state for state in ready if state.phase is Phase.DECODE and state not in without]

    def _attend(self, state: SchedulingState) -> bool:
        """Look at a decode at its mark: all scheduled, lease over, or blocks full.

        Returns whether it can run in this step.
        """
        cursor = state.request.num_scheduled_tokens
        if state.phase is not Phase.DECODE:  # it was the victim of one before it
            return False
        if cursor >= state.last:
            self._transitions.drain(state)
            return False
        if cursor == state.lease_end:
            self._running.rerank(state, self._policy.rank(state))
            state.begin_lease(self._policy.lease(state))
        if cursor == state.num_slots and not self._grow(state):
            return False
        state.set_mark()
        return True

    def _grow(self, state: SchedulingState) -> bool:
        """Give a decode a slot for its next token, if need be a block of a victim.

        Returns whether it has one.
        """
        num_tokens = state.request.num_scheduled_tokens + 1
        while (block_ids := self._blocks.allocate(state, num_tokens)) is None:
            if self._blocks.on_their_way:  # sit out, and preempt no more
                return False
            victim = self._policy.victim(self._running.ranked, state) or state
            self._transitions.preempt(victim)
            if victim is state:
                return False
        self._draft.grow(state, block_ids)
        return True

    def _decodes(self, ready: list[SchedulingState], budget: int) -> list[SchedulingState]:
        """Advance the decodes that fit into the budget. The others come first in the next step."""
        if self._transitions.preempted_in_step:
            ready = [state for state in ready if state.phase is Phase.DECODE]
        chosen = ready[:budget]
        if len(chosen) < len(self._running.decoding):
            self._running.serve_last(chosen)
        for state in chosen:
            state.request.num_scheduled_tokens += 1
        return chosen

    # -- prompts -----------------------------------------------------------------------------------

    def _chunks(self, split: Split, budget: int) -> list[Chunk]:
        """Chunks of known tokens, best rank first, up to the budget."""
        room = min(budget, split.prefill)
        chunks: list[Chunk] = []
        for state in list(self._running.prefilling):
            left = state.num_unscheduled_tokens
            tokens = min(left, split.chunk, room)
            if tokens <= 0 or (tokens < left and not self._chunked):
                break
            state.request.num_scheduled_tokens += tokens
            room -= tokens
            chunks.append(Chunk(state, tokens, samples=tokens == left))
            if tokens == left:
                self._transitions.start_decode(state)
        return chunks
