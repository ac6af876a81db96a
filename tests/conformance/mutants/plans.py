"""Schedulers with one bug each in their plans: who gets which tokens and blocks, and what workers are told."""

from enginecore.interfaces import CachedPrefix
from enginecore.scheduling.admission import Admission
from enginecore.scheduling.checked_policy import CheckedPolicy
from enginecore.scheduling.planner import Planner
from enginecore.scheduling.queues import RunningRequests
from enginecore.scheduling.step import Chunk, PlanDraft
from enginecore_schedulers.prefill_first import PrefillFirst
from enginecore_schedulers.priority import Priority
from tests.conformance.mutants.assembly import scheduler, table

# -- what workers are told ---------------------------------------------------------------------------------------------


class NamesFinishedTwice(PlanDraft):
    """A request that has ended is named as gone in two plans; by the second its id may have a new owner."""

    _named: frozenset[str] = frozenset()

    def build(self, batch):
        plan = super().build(batch)
        again = [request_id for request_id in plan.finished_ids if request_id not in self._named]
        self._finished += again
        self._named = frozenset(again)
        return plan


class NeverNamesFinished(PlanDraft):
    """Workers do not hear that a request has ended."""

    def finish(self, state):
        super().finish(state)
        self._finished.clear()


class NamesAVictimAsNew(PlanDraft):
    """Who was admitted and has given way in one and the same step is still new in its plan."""

    def preempt(self, state):
        new = self._new.get(state)
        super().preempt(state)
        if new:
            self._new[state] = new


class ReturnsWithItsFirstBlocks(PlanDraft):
    """A resumed request is sent with the blocks that it had the first time."""

    def admit(self, state, block_ids):
        super().admit(state, block_ids)
        first = self.__dict__.setdefault("_first", {}).setdefault(state.request, block_ids)
        self._new[state].block_ids = first


class ForgetsItsOwnOutput(PlanDraft):
    """A resumed request is sent with its prompt alone."""

    def admit(self, state, block_ids):
        super().admit(state, block_ids)
        new = self._new[state]
        new.token_ids = new.token_ids[: new.num_prompt_tokens]


class SaysNothingOfTheHit(PlanDraft):
    """A new request with a cached prefix is sent as if nothing of it were computed."""

    def admit(self, state, block_ids):
        super().admit(state, block_ids)
        self._new[state].num_computed_tokens = 0


class LosesDeltasOnPreemption(PlanDraft):
    """Where somebody gives way, workers do not hear of the blocks that others got in the same step."""

    def preempt(self, state):
        super().preempt(state)
        self._grown.clear()


class CountsWrittenTokensInDeltas(PlanDraft):
    """A delta gives the tokens that have come back, and leaves those in flight out."""

    def grow(self, state, block_ids):
        super().grow(state, block_ids)
        self._grown[state].num_computed_tokens = state.request.num_computed_tokens


# -- budgets and spans -------------------------------------------------------------------------------------------------


class SpendsWhatVictimsHad(Planner):
    """The tokens of those that gave way are given back to the budget, which they were never taken from."""

    def _chunks(self, split, budget):
        given_back = len(self._transitions.preempted_in_step)
        return super()._chunks(split._replace(prefill=split.prefill + given_back), budget + given_back)


class DecodesBeyondTheBudget(Planner):
    """All decodes run in every step, however many there are."""

    def _decodes(self, ready, budget):
        return super()._decodes(ready, len(ready))


class KeepsVictimsInThePlan(Planner):
    """A decode that has given way to an urgent request stays in the plan of the step."""

    def _decodes(self, ready, budget):
        chosen = ready[:budget]
        for state in chosen:
            state.request.num_scheduled_tokens += 1
        return chosen


class SchedulesUnknownTokens(Planner):
    """A request is scheduled before its token has come back, although the executor does not feed tokens."""

    def _ready_decodes(self):
        self._waits_for_tokens = False
        return super()._ready_decodes()


class OverlapsChunks(Planner):
    """The second chunk of a prompt begins with the last token of the first."""

    def _chunks(self, split, budget):
        chunks = super()._chunks(split, budget)
        for state, num_tokens, samples in chunks:
            if not samples and num_tokens > 1:
                state.request.num_scheduled_tokens -= 1
        return chunks


class SplitsPromptsAllTheSame(Planner):
    """Prompts are split over steps although chunked prefill is off."""

    def plan_step(self, step):
        self._chunked = True
        return super().plan_step(step)


class PublishesAtScheduling(Planner):
    """Blocks of a prompt are published when they are scheduled, before any step has written them."""

    def _chunks(self, split, budget):
        chunks = super()._chunks(split, budget)
        for state, _, _ in chunks:
            self._blocks._manager.cache_blocks(state.request, state.request.num_scheduled_tokens)
        return chunks


# -- seats -------------------------------------------------------------------------------------------------------------


class CountsDrainingOut(RunningRequests):
    """A request that only waits for its last token counts as gone, and its seat is given away."""

    def __len__(self):
        return len(self.ranked)


class ReturnsBeforeItsLateToken(Admission):
    """A preempted request comes back while a token of it is still in flight."""

    def _must_wait(self, state):
        return state in self._blocks.on_their_way or state in self._transitions.preempted_in_step


class SkipsTheHeavyForEver(CheckedPolicy):
    """Whoever fits is admitted: a heavy request is passed over for as long as light ones come."""

    def choose(self):
        manager = self.view._kv
        for state in sorted(self._live.waiting, key=lambda state: state.order):
            if manager.num_blocks_to_allocate(state.request, state.request.num_tokens) <= manager.num_free_blocks:
                return state
        return None


class NeverLooksUp(Admission):
    """Declares prefix caching, and never asks for a cached prefix."""

    def _seat(self, state):
        if not self._running.num_free_seats:
            return False
        block_ids = self._blocks.allocate(state, state.request.num_tokens, CachedPrefix(([],), 0))
        if block_ids is None:
            return False
        self._transitions.admit(state, block_ids, 0)
        return True


class AdmitsByTheNextChunk(Admission):
    """A prompt is admitted if its first chunk fits, and gets its blocks chunk by chunk: two long ones thrash."""

    def _seat(self, state):
        if not self._running.num_free_seats:
            return False
        prefix = self._blocks.find_prefix(state)
        chunk = min(state.request.num_tokens, prefix.num_tokens + self._policy.view.max_num_batched_tokens)
        block_ids = self._blocks.allocate(state, chunk, prefix)
        if block_ids is None:
            return False
        self._transitions.admit(state, block_ids, prefix.num_tokens)
        return True


class GrowsByChunks(Planner):
    """Belongs to AdmitsByTheNextChunk: blocks for the next chunk, if need be those of the newest prompt."""

    def _chunks(self, split, budget):
        chunks: list[Chunk] = []
        for state in list(self._running.prefilling):
            room = min(budget, split.prefill) - sum(chunk.num_tokens for chunk in chunks)
            left = state.request.num_tokens - state.request.num_scheduled_tokens
            tokens = min(split.chunk, room, left)
            if tokens <= 0 or (tokens < left and not self._chunked):
                break
            if state in self._running.prefilling and self._reach(state, tokens):
                chunks += self._chunk(state, tokens)
        return chunks

    def _chunk(self, state, tokens):
        request = state.request
        samples = request.num_scheduled_tokens + tokens == request.num_tokens
        request.num_scheduled_tokens += tokens
        if samples:
            self._transitions.start_decode(state)
        return [Chunk(state, tokens, samples)]

    def _reach(self, state, tokens):
        end = state.request.num_scheduled_tokens + tokens
        while (block_ids := self._blocks.allocate(state, end)) is None:
            newest = self._running.prefilling[len(self._running.prefilling) - 1]
            self._transitions.preempt(newest)
            if newest is state:
                return False
        if block_ids[0]:
            self._draft.grow(state, block_ids)
        return True


MUTANTS = table(
    (scheduler(NamesFinishedTwice), 23),
    (scheduler(NeverNamesFinished), 23),
    (scheduler(NamesAVictimAsNew), 13),
    (scheduler(ReturnsWithItsFirstBlocks), 26),
    (scheduler(ForgetsItsOwnOutput), 27),
    (scheduler(SaysNothingOfTheHit), 34),
    (scheduler(LosesDeltasOnPreemption), 13),
    (scheduler(CountsWrittenTokensInDeltas), 26),
    (scheduler(SpendsWhatVictimsHad, policy=Priority), 13),
    (scheduler(DecodesBeyondTheBudget, policy=PrefillFirst), None),
    (scheduler(KeepsVictimsInThePlan, policy=Priority), 13),
    (scheduler(SchedulesUnknownTokens), 70),
    (scheduler(OverlapsChunks), None),
    (scheduler(SplitsPromptsAllTheSame), 8),
    (scheduler(PublishesAtScheduling), 41),
    (scheduler(CountsDrainingOut), None),
    (scheduler(ReturnsBeforeItsLateToken), 26),
    (scheduler(SkipsTheHeavyForEver), 12),
    (scheduler(NeverLooksUp), None),
    (scheduler(AdmitsByTheNextChunk, GrowsByChunks), 3),
)
