"""Schedulers with one bug each in the lives of requests: how they arrive, end, give way, and what clients hear.

`plans` has those that tell workers something wrong.
"""

import msgspec

from enginecore.messages import EngineCoreOutput, FinishReason, SchedulerOutput
from enginecore.scheduling.blocks import RequestBlocks
from enginecore.scheduling.settlement import Settlement
from enginecore.scheduling.state import Phase, SchedulingState
from enginecore.scheduling.step import Batch, Outbox
from enginecore.scheduling.transitions import Transitions
from tests.conformance.mutants.assembly import Assembled, Patient, scheduler, table

# -- arrival -----------------------------------------------------------------------------------------------------------


class AcceptsTheImpossible(Transitions):
    """A prompt that can never fit into the KV cache is queued, and stands at the head of the queue for ever."""

    def add(self, request):
        if request.num_prompt_tokens <= self._blocks.capacity:
            return super().add(request)
        state = SchedulingState(request)
        self._live.add(state)
        self._policy.added(state)
        self._enqueue(state)


class LetsARequestOutgrowThePool(Transitions):
    """A request alone may become longer than the KV cache: then it evicts itself, again and again."""

    def add(self, request):
        asked = request.max_total_tokens
        super().add(request)
        if state := self._live.get(request.request_id):
            request.max_total_tokens = asked
            state.last = max(asked - 1, request.num_prompt_tokens)


class AcceptsAnIdTwice(Transitions):
    """A request with the id of a live one takes its place in the books."""

    def add(self, request):
        if state := self._live.get(request.request_id):
            self._live.remove(state)
        super().add(request)


class ForgetsStopTokens(Assembled):
    """Keeps a rule of its own for the end of an output, which knows EOS and the length, and no stop token ids."""

    def add_request(self, request):
        request._stop_token_ids = request._eos_token_ids
        super().add_request(request)


class EndsATokenEarly(Assembled):
    """Counts the token in flight twice against max_tokens: outputs lack their last token."""

    def add_request(self, request):
        if request.max_total_tokens > request.num_prompt_tokens + 1:
            request.max_total_tokens -= 1
        super().add_request(request)


class GivesATokenToMaxTokensZero(Assembled):
    """max_tokens = 0 gives one token."""

    def add_request(self, request):
        request.max_total_tokens = max(request.max_total_tokens, request.num_prompt_tokens + 1)
        super().add_request(request)


class NeverForgets(Assembled):
    """Keeps every request that it ever saw: host memory grows for ever."""

    def __init__(self, *args):
        super().__init__(*args)
        self._seen = {}

    def add_request(self, request):
        self._seen[request] = request.arrival_time
        super().add_request(request)


# -- aborts and ends ---------------------------------------------------------------------------------------------------


class KeepsBlocksOnAbort(Transitions):
    """Whoever is aborted while it runs keeps its blocks."""

    def finish(self, state, reason):
        state.request.finish_reason = reason
        super().finish(state, reason)

    def _vacate(self, state):
        if state.request.finish_reason is not FinishReason.ABORT:
            return super()._vacate(state)
        self._in_flight.mark_stale(state)
        self._running.remove(state)


class FreesUnderTheFeetOfSteps(RequestBlocks):
    """Frees blocks at once, although steps in flight of an executor that runs out of order still write to them."""

    @property
    def are_written(self):
        return False


class RaisesOnUnknownAbort(Assembled):
    """An abort for a request that has just ended is a KeyError."""

    def abort_requests(self, request_ids):
        ids = list(request_ids)
        assert all([self._live[request_id] for request_id in ids])
        super().abort_requests(ids)


class SaysGoodbyeOnAbort(Assembled):
    """An aborted request gets a terminal output, although its client has gone."""

    def abort_requests(self, request_ids):
        self.finish_requests(request_ids, FinishReason.ABORT)


class MissesWaitingOnesOnAbort(Assembled):
    """An abort is looked up among the requests that run: those that wait are not found, and run later."""

    def abort_requests(self, request_ids):
        found = {i: self._live.get(i) for i in request_ids}
        known = [i for i, state in found.items() if state and state.phase is not Phase.WAITING]
        super().abort_requests(known)


class EndsWaitingOnesInSilence(Assembled):
    """When the engine ends requests, those that wait get no terminal output: their clients wait for ever."""

    def finish_requests(self, request_ids, reason, error=None):
        ids = list(request_ids)
        found = {i: self._live.get(i) for i in ids}
        waiting = [i for i, state in found.items() if state and state.phase is Phase.WAITING]
        self.abort_requests(waiting)
        super().finish_requests(ids, reason, error)


class EndsTwice(Settlement):
    """A request that ends by its own last token gets a second terminal output."""

    def _end(self, state, output):
        super()._end(state, output)
        self._outbox.add_terminal(state.request, FinishReason.LENGTH)


class AnswersTheFirstClient(Outbox):
    """Terminal outputs of refused and ended requests lack a return address: the first client gets them."""

    def add_terminal(self, request, reason, error=None):
        self.add(0, EngineCoreOutput(request.request_id, [], reason, error=error))


class GivesOutputsTwice(Assembled):
    """Outputs that are taken without a step stay in the outbox and are given again."""

    def take_outputs(self):
        due = super().take_outputs()
        for client, outputs in due.items():
            self._outbox.due_to(client).extend(outputs)
        return due


class ForgetsThatIdsAreDue(Assembled):
    """Says that nothing is left to do while workers have not heard which requests have ended."""

    def has_requests(self):
        return bool(self._live or self._in_flight or self._outbox)


class KnowsRunningOnesOnly(Assembled):
    """Those that wait are not among the unfinished requests: a shutdown does not end them."""

    @property
    def unfinished_requests(self):
        return [state.request for state in self._live.running]


# -- preemption with steps in flight -----------------------------------------------------------------------------------


class DropsALateToken(Settlement):
    """The token that was in flight when its request was preempted is thrown away, and sampled again later."""

    def _accept(self, state, sampled, is_stale, logprobs):
        if is_stale and state.phase is not Phase.ENDED:
            state.request.num_late_tokens -= 1
        else:
            super()._accept(state, sampled, is_stale, logprobs)


class RepeatsALateToken(Settlement):
    """The client gets the late token of a preempted request, which itself forgets it and samples it again."""

    def _accept(self, state, sampled, is_stale, logprobs):
        num_known = state.request.num_tokens
        super()._accept(state, sampled, is_stale, logprobs)
        if is_stale and state.phase is not Phase.ENDED:
            del state.request.token_ids[num_known:]


class SwallowsALateToken(Settlement):
    """A preempted request keeps its late token to itself: its client never gets it."""

    def _accept(self, state, sampled, is_stale, logprobs):
        if not is_stale or state.phase is Phase.ENDED or not sampled:
            return super()._accept(state, sampled, is_stale, logprobs)
        request = state.request
        request.num_late_tokens -= 1
        output = EngineCoreOutput(request.request_id, request.append(sampled))
        if request.finish_reason is not None:
            self._outbox.add(request.client_index, output)
            self._end(state, output)


class CountsAStaleChunk(Settlement):
    """A chunk of a prompt that was in flight when its request was preempted counts as written once it runs again."""

    def _settle_chunks(self, batch, tokens, logprobs):
        batch.stale.difference_update({chunk.state for chunk in batch.chunks if chunk.state.phase is Phase.PREFILL})
        super()._settle_chunks(batch, tokens, logprobs)


class GivesALateTokenToTheNextOwner(Settlement):
    """Results are looked up by id: a new request with the id of an aborted one gets the token that was in flight."""

    def _accept(self, state, sampled, is_stale, logprobs):
        owner = self._transitions._live.get(state.request_id) or state
        super()._accept(owner, sampled, is_stale and owner is state, logprobs)


class RecountsTheCachedPrefix(Transitions):
    """After a preemption what is found in the cache is added to what was found at the first admission."""

    def admit(self, state, block_ids, num_cached_tokens):
        before = max(state.request.num_cached_tokens, 0)
        super().admit(state, block_ids, num_cached_tokens)
        state.request.num_cached_tokens = before + num_cached_tokens


class ClaimsATokenMoreOnReturn(Transitions):
    """A resumed request starts one token behind its cached prefix: a gap in what is written."""

    def admit(self, state, block_ids, num_cached_tokens):
        request = state.request
        gap = request.num_preemptions > 0 and num_cached_tokens + 1 < request.num_tokens
        super().admit(state, block_ids, num_cached_tokens + gap)


# -- faults of the executor --------------------------------------------------------------------------------------------


class SkipsMissingRows(Settlement):
    """A request that the executor's output lacks is passed over, and never ends."""

    def _accept(self, state, sampled, is_stale, logprobs):
        if sampled is not None:
            super()._accept(state, sampled, is_stale, logprobs)


class IgnoresExecutorErrors(Settlement):
    """An error that the executor lays at one request is lost."""

    def _fail(self, errors, batch):
        pass


class BlamesTheWholeBatch(Settlement):
    """An error that the executor lays at one request ends all of its step."""

    def _fail(self, errors, batch):
        for state in (*batch.decodes, *(chunk.state for chunk in batch.chunks)):
            if state.phase is not Phase.ENDED:
                self._transitions.fail(state, "; ".join(errors.values()))
                batch.stale.add(state)


# -- cache reset, stats, time ------------------------------------------------------------------------------------------


class SaysThatItHasReset(Assembled):
    """The reset of the prefix cache says yes, although requests hold blocks and nothing was forgotten."""

    def reset_prefix_cache(self, reset_running_requests=False):
        super().reset_prefix_cache(reset_running_requests)
        return True


class IgnoresResetOfRunning(Assembled):
    """The reset of the prefix cache takes `reset_running_requests` and does not read it."""

    def reset_prefix_cache(self, reset_running_requests=False):
        return super().reset_prefix_cache()


class CountsRunningAsWaiting(Assembled):
    """The number of waiting requests is that of all live ones."""

    def get_stats(self):
        return msgspec.structs.replace(super().get_stats(), num_waiting=len(self._live))


class CountsNoPreemptions(Assembled):
    """Preemptions are not counted."""

    def get_stats(self):
        return msgspec.structs.replace(super().get_stats(), num_preemptions=0)


class AwaitsAnAnswerToNothing(Assembled):
    """An empty plan is put among the steps in flight: its answer never comes."""

    def schedule(self):
        plan = super().schedule()
        if plan.is_empty:
            self._in_flight.append(Batch(plan.step, [], []))
        return plan


class LosesIdsOfAnEmptyStep(Assembled):
    """Where no token is scheduled, workers do not hear which requests have ended."""

    def schedule(self):
        plan = super().schedule()
        if plan.num_scheduled_tokens or plan.new_requests or plan.preempted_ids or not plan.finished_ids:
            return plan
        self._in_flight.pop()
        return SchedulerOutput(step=plan.step)


class NeverWakes(Assembled):
    """Requests are put off, and nobody is told until when."""

    @property
    def wake_time(self):
        return None


class WakesInThePast(Assembled):
    """The time to wake up is one at which it was put off, so that the engine spins."""

    @property
    def wake_time(self):
        until = super().wake_time
        return None if until is None else until - 1.0


MUTANTS = table(
    (scheduler(AcceptsTheImpossible), 1),
    (scheduler(LetsARequestOutgrowThePool), 2),
    (scheduler(AcceptsAnIdTwice), 22),
    (scheduler(ForgetsStopTokens), 103),
    (scheduler(EndsATokenEarly), 30),
    (scheduler(GivesATokenToMaxTokensZero), 30),
    (scheduler(NeverForgets), 109),
    (scheduler(KeepsBlocksOnAbort), 24),
    (scheduler(FreesUnderTheFeetOfSteps), 49),
    (scheduler(RaisesOnUnknownAbort), 24),
    (scheduler(SaysGoodbyeOnAbort), 24),
    (scheduler(MissesWaitingOnesOnAbort), 25),
    (scheduler(EndsWaitingOnesInSilence), 79),
    (scheduler(EndsTwice), 105),
    (scheduler(AnswersTheFirstClient), 18),
    (scheduler(GivesOutputsTwice), None),
    (scheduler(ForgetsThatIdsAreDue), 23),
    (scheduler(KnowsRunningOnesOnly), 79),
    (scheduler(DropsALateToken), 26),
    (scheduler(RepeatsALateToken), 26),
    (scheduler(SwallowsALateToken), 26),
    (scheduler(CountsAStaleChunk), 26),
    (scheduler(GivesALateTokenToTheNextOwner), 22),
    (scheduler(RecountsTheCachedPrefix), 32),
    (scheduler(ClaimsATokenMoreOnReturn), 27),
    (scheduler(SkipsMissingRows), 31),
    (scheduler(IgnoresExecutorErrors), 31),
    (scheduler(BlamesTheWholeBatch), 31),
    (scheduler(SaysThatItHasReset), 45),
    (scheduler(IgnoresResetOfRunning), 45),
    (scheduler(CountsRunningAsWaiting), 52),
    (scheduler(CountsNoPreemptions), 52),
    (scheduler(AwaitsAnAnswerToNothing), 33),
    (scheduler(LosesIdsOfAnEmptyStep), 23),
    (scheduler(NeverWakes, policy=Patient), None),
    (scheduler(WakesInThePast, policy=Patient), 33),
)
