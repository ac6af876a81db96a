"""Who runs in the next step, with how many tokens each."""

from enginecore.errors import InvariantError
from enginecore.plugin import SchedulerContext
from enginecore.scheduling.admission import Admission
from enginecore.scheduling.lifecycle import Lifecycle
from enginecore.scheduling.policy import Split
from enginecore.scheduling.state import Phase, SchedulingState
from enginecore.scheduling.step import Batch, Chunk


class Planner:
    """Makes one batch: blocks for decodes, then admissions, then tokens. Nothing given out is ever unwound."""

    def __init__(self, lives: Lifecycle, context: SchedulerContext) -> None:
        self._lives = lives
        self._kv = context.kv_cache_manager
        self._admission = Admission(lives, context)
        self._budget = context.max_num_batched_tokens
        self._chunked = context.enable_chunked_prefill
        self._max_batches = context.executor.max_concurrent_batches
        self._waits_for_tokens = self._max_batches > 1 and not context.executor.feeds_tokens

    def plan(self) -> Batch:
        """The batch of the step that has just begun; cursors are advanced."""
        lives = self._lives
        split = self._split()
        decodes: list[SchedulingState] = []
        chunks: list[Chunk] = []
        if split.first == "decode":
            ready = self._ready_decodes()
            if not lives.preempted_in_step:
                self._admit(split, self._budget - len(ready))
            decodes = self._decodes(ready, self._budget)
            if split.mix or not decodes:
                chunks = self._chunks(split, self._budget - len(decodes))
        else:
            self._admit(split, self._budget)
            prefills = lives.running.prefilling and split.prefill
            ready = self._ready_decodes() if split.mix or not prefills else []
            chunks = self._chunks(split, self._budget)
            decodes = self._decodes(ready, self._budget - sum(chunk.num_tokens for chunk in chunks))
        return Batch(lives.view.step, decodes, chunks)

    def _split(self) -> Split:
        split = self._lives.policy.split(self._lives.view)
        if not isinstance(split, Split) or not split.is_valid:
            raise InvariantError(
                f"{type(self._lives.policy).__name__}.split gave {split}: a Split with chunk of at least 1, prefill "
                "and admit of at least 0, first 'decode' or 'prefill'"
            )
        if not self._chunked:
            # a prompt that may not be split needs the whole budget, so it goes before decodes
            split = split._replace(first="prefill", prefill=self._budget, chunk=self._budget)
        return split

    def _admit(self, split: Split, budget: int) -> None:
        self._admission.admit(split, min(split.prefill, budget))
        self._lives.running.settle()  # once, however many were displaced

    # -- decodes -------------------------------------------------------------------------------------------------

    def _ready_decodes(self) -> list[SchedulingState]:
        """The decodes that can run, each with a slot for its next token. Preempts where memory is short."""
        running = self._lives.running
        ready = list(running.decoding)
        if self._waits_for_tokens:
            # a request waits for its token; the others are shared out over the batches in flight
            share = -(-len(ready) // self._max_batches)
            ready = [state for state in ready if not state.request.num_sampling_tokens][:share]
        due = [state for state in ready if state.request.num_scheduled_tokens == state.mark]
        if not due:
            return ready
        without = {state for state in due if not self._attend(state)}
        running.settle()
        return [state for state in ready if state.phase is Phase.DECODE and state not in without]

    def _attend(self, state: SchedulingState) -> bool:
        """A decode at its mark: all scheduled, lease over, or block full. Whether it can run in this step."""
        lives, cursor = self._lives, state.request.num_scheduled_tokens
        if state.phase is not Phase.DECODE:  # it was the victim of one before it
            return False
        if cursor >= state.last:
            lives.running.to_drain(state)
            return False
        if cursor == state.lease_end:
            lives.rerank(state)
        if cursor == state.num_slots and not self._grow(state):
            return False
        state.set_mark()
        return True

    def _grow(self, state: SchedulingState) -> bool:
        """A slot for its next token, if need be somebody else's."""
        lives, request = self._lives, state.request
        while (block_ids := self._kv.allocate_slots(request, request.num_scheduled_tokens + 1)) is None:
            if lives.in_flight.any_unfreed:  # blocks are on their way: sit out, and evict nobody more
                return False
            victim = self._victim(state)
            lives.preempt(victim)
            if victim is state:
                return False
        lives.hold(state, block_ids)
        lives.draft.grow(state, block_ids)
        return True

    def _victim(self, needy: SchedulingState) -> SchedulingState:
        lives = self._lives
        named = lives.policy.victim(list(lives.running.ranked), needy, lives.view)
        victim = needy if named is None else lives.find(named, "victim")
        if victim not in lives.running.ranked:
            raise InvariantError(f"{type(lives.policy).__name__}.victim named {victim!r}, which is not a candidate")
        return victim

    def _decodes(self, ready: list[SchedulingState], budget: int) -> list[SchedulingState]:
        """Advance those that fit. Those that do not come first the next time."""
        chosen = [state for state in ready if state.phase is Phase.DECODE] if self._lives.preempted_in_step else ready
        chosen = chosen[:budget]
        if len(chosen) < len(self._lives.running.decoding):
            self._lives.running.serve_last(chosen)
        for state in chosen:
            state.request.num_scheduled_tokens += 1
        return chosen

    # -- prompts -------------------------------------------------------------------------------------------------

    def _chunks(self, split: Split, budget: int) -> list[Chunk]:
        """Chunks of known tokens, best rank first, up to the budget."""
        room = min(budget, split.prefill)
        chunks: list[Chunk] = []
        for state in list(self._lives.running.prefilling):
            request = state.request
            left = request.num_tokens - request.num_scheduled_tokens
            tokens = min(left, split.chunk, room)
            if tokens <= 0 or (tokens < left and not self._chunked):
                break
            request.num_scheduled_tokens += tokens
            room -= tokens
            chunks.append(Chunk(state, tokens, samples=tokens == left))
            if tokens == left:
                self._lives.running.to_decode(state)
                state.set_mark()
        return chunks
