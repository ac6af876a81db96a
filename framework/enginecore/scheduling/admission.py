"""Seats and blocks for waiting requests."""

from enginecore.errors import InvariantError
from enginecore.interfaces import CachedPrefix
from enginecore.plugin import SchedulerContext
from enginecore.scheduling.lifecycle import Lifecycle
from enginecore.scheduling.policy import Delay, Split
from enginecore.scheduling.queues import place_of
from enginecore.scheduling.state import Phase, SchedulingState


class Admission:
    """Admits whom the policy chooses, while there is room.

    A request is given blocks for all its known tokens at once, never just for its next chunk: two long prompts that
    are admitted chunk by chunk evict each other half-way, again and again.
    """

    def __init__(self, lives: Lifecycle, context: SchedulerContext) -> None:
        self._lives = lives
        self._kv = context.kv_cache_manager
        self._max_num_seqs = context.max_num_seqs

    def admit(self, split: Split, num_tokens: int) -> None:
        """Admit requests until their chunks in this step fill `num_tokens`, or the policy or the memory says stop."""
        lives = self._lives
        room = num_tokens - sum(min(split.chunk, self._left(state)) for state in lives.running.prefilling)
        admissions = split.admit
        while admissions > 0 and room > 0 and lives.waiting:
            state = self._chosen()
            if state is None or self._must_wait(state):
                return
            if not state.num_preemptions and (reason := lives.refusal(state)):
                lives.fail(state, reason)
                continue
            if not self._seat(state):
                return
            room -= min(split.chunk, self._left(state))
            admissions -= 1

    def _chosen(self) -> SchedulingState | None:
        lives = self._lives
        named = lives.policy.choose(lives.view)
        if named is None:
            return None
        if isinstance(named, Delay):
            lives.delay(named.until)
            return None
        state = lives.find(named, "choose")
        if state.phase is not Phase.WAITING:
            raise InvariantError(f"{type(lives.policy).__name__}.choose named {state!r}, which does not wait")
        return state

    def _must_wait(self, state: SchedulingState) -> bool:
        """Whether it may not return yet; nobody overtakes it meanwhile.

        Its late tokens are part of what it must compute, and dropping them instead livelocks policies that preempt
        often. Blocks that it still holds are written to by a step in flight.
        """
        late = state.request.num_late_tokens > 0 or state.num_blocks > 0
        return late or state in self._lives.preempted_in_step

    def _seat(self, state: SchedulingState) -> bool:
        """Give it a seat and blocks for all that is known of it, if need be somebody else's."""
        lives, request = self._lives, state.request
        may_displace = lives.policy.preemptive and not lives.in_flight.any_unfreed
        if len(lives.running) >= self._max_num_seqs and not may_displace:
            return False
        prefix = self._kv.get_computed_blocks(request)
        if may_displace:
            victims = self._victims(state, prefix)
            if victims is None:
                return False
            for victim in victims:
                lives.preempt(victim)
            if victims:  # a prefix is valid until blocks are freed
                prefix = self._kv.get_computed_blocks(request)
        block_ids = self._kv.allocate_slots(request, request.num_tokens, prefix)
        if block_ids is None:
            return False
        lives.seat(state, block_ids, prefix.num_tokens)
        return True

    def _victims(self, state: SchedulingState, prefix: CachedPrefix) -> list[SchedulingState] | None:
        """Who must go to let it in: nobody, or strictly worse ones that the policy names. None: it cannot come in."""
        lives, request = self._lives, state.request
        need = self._kv.num_blocks_to_allocate(request, request.num_tokens, prefix)
        victims: list[SchedulingState] = []
        worse: list[SchedulingState] | None = None
        while self._is_short(need, victims, prefix):
            if worse is None:
                worse = lives.running.ranked.strictly_after(state.rank)
            named = lives.policy.victim(worse, state, lives.view) if worse else None
            if named is None:
                return None
            victim = lives.find(named, "victim")
            place = place_of(victim, worse)
            if place is None:
                raise InvariantError(
                    f"{type(lives.policy).__name__}.victim named {victim!r} for the waiting {state!r}: "
                    "only a running request that ranks strictly after it may be displaced"
                )
            del worse[place]
            victims.append(victim)
        return victims

    def _is_short(self, need: int, victims: list[SchedulingState], prefix: CachedPrefix) -> bool:
        """Whether a seat or `need` blocks are lacking once these are gone."""
        if len(self._lives.running) - len(victims) >= self._max_num_seqs:
            return True
        short = need - self._kv.num_free_blocks
        if short > sum(victim.num_blocks for victim in victims):
            return True
        # others may hold some of these blocks, too
        return short > 0 and short > self._kv.num_freeable_blocks([victim.request for victim in victims], prefix)

    @staticmethod
    def _left(state: SchedulingState) -> int:
        return state.request.num_tokens - state.request.num_scheduled_tokens
