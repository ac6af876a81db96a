"""Admission of waiting requests: a seat, and blocks for all that is known of them."""

from enginecore.interfaces import CachedPrefix
from enginecore.scheduling.blocks import RequestBlocks
from enginecore.scheduling.checked_policy import CheckedPolicy
from enginecore.scheduling.policy import Split
from enginecore.scheduling.queues import LiveRequests
from enginecore.scheduling.state import SchedulingState
from enginecore.scheduling.transitions import Transitions


class Admission:
    """Admits the requests that the policy chooses, while there is room.

    A request is given blocks for all its known tokens at once, never just for its next chunk: two
    long prompts that are admitted chunk by chunk evict each other half-way, again and again.
    """

    def __init__(
        self, live: LiveRequests, policy: CheckedPolicy, blocks: RequestBlocks, transitions: Transitions
    ) -> None:
        self._waiting = live.waiting
        self._running = live.running
        self._policy = policy
        self._blocks = blocks
        self._transitions = transitions

    def admit_requests(self, split: Split, num_tokens: int) -> None:
        """Admit requests until prompts fill `num_tokens`, or the policy or the memory says stop."""
        room = num_tokens - sum(min(split.chunk, state.num_unscheduled_tokens) for state in self._running.prefilling)
        admissions = split.admit
        while admissions > 0 and room > 0 and self._waiting:
            state = self._policy.choose()
            if state is None or self._must_wait(state):
                return
            if not state.num_preemptions and (reason := self._policy.find_refusal(state)):
                self._transitions.fail(state, reason)
                continue
            if not self._seat(state):
                return
            room -= min(split.chunk, state.num_unscheduled_tokens)
            admissions -= 1

    def _must_wait(self, state: SchedulingState) -> bool:
        """Whether a preempted request may not return yet. No other one overtakes it meanwhile.

        Its late tokens are part of what it must compute, and dropping them instead livelocks
        policies that preempt often.
        """
        is_late = state.request.num_late_tokens > 0 or state in self._blocks.on_their_way
        return is_late or state in self._transitions.preempted_in_step

    def _seat(self, state: SchedulingState) -> bool:
        """Admit a request, if need be in the place of others. False: there is no room for it."""
        may_displace = self._policy.preemptive and not self._blocks.on_their_way
        if self._running.num_free_seats <= 0 and not may_displace:
            return False
        prefix = self._blocks.find_prefix(state)
        if may_displace:
            victims = self._victims(state, prefix)
            if victims is None:
                return False
            for victim in victims:
                self._transitions.preempt(victim)
            if victims:  # a prefix is valid until blocks are freed
                prefix = self._blocks.find_prefix(state)
        block_ids = self._blocks.allocate(state, state.request.num_tokens, prefix)
        if block_ids is None:
            return False
        self._transitions.admit(state, block_ids, prefix.num_tokens)
        return True

    def _victims(self, state: SchedulingState, prefix: CachedPrefix) -> list[SchedulingState] | None:
        """The running requests that give way to it, each of which ranks strictly after it.

        None: the policy does not name enough of them for seat and blocks.
        """
        needed = self._blocks.num_needed(state, prefix)
        victims: list[SchedulingState] = []
        worse = self._running.ranked_after(state.rank)
        while not self._has_room(needed, prefix, victims):
            victim = self._policy.victim(worse, state) if worse else None
            if victim is None:
                return None
            worse.remove(victim)
            victims.append(victim)
        return victims

    def _has_room(self, num_blocks: int, prefix: CachedPrefix, victims: list[SchedulingState]) -> bool:
        """Whether a seat and so many blocks are free once the victims are preempted."""
        has_seat = self._running.num_free_seats + len(victims) > 0
        return has_seat and self._blocks.can_provide(num_blocks, prefix, victims)
