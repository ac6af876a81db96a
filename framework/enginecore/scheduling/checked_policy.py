"""A scheduling policy at work: what it sees, its decisions with their checks, its events."""

import math
from collections.abc import Hashable, Sequence

from enginecore.errors import InvariantError
from enginecore.interfaces import RequestView
from enginecore.plugin import SchedulerContext
from enginecore.scheduling.policy import Delay, Rank, SchedulingPolicy, Split, WorstRank
from enginecore.scheduling.queues import LiveRequests, RankedList
from enginecore.scheduling.state import Phase, SchedulingState


class StepView:
    """Fills `SchedulerView`. `step` and `now` are set; everything else is read through."""

    def __init__(self, context: SchedulerContext, live: LiveRequests) -> None:
        self.step = 0
        self.now = context.clock.now()
        self.waiting = live.waiting
        self.max_num_seqs = context.max_num_seqs
        self.max_num_batched_tokens = context.max_num_batched_tokens
        self.enable_chunked_prefill = context.enable_chunked_prefill
        self.block_size = context.kv_cache_manager.block_size
        self._clock = context.clock
        self._kv = context.kv_cache_manager
        self._live = live
        self._running = live.running
        self._cached_tokens: dict[str, int] = {}
        self._victims = context.victim or WorstRank()

    def begin_step(self) -> None:
        """Count a step."""
        self.step += 1
        self.refresh()

    def refresh(self) -> None:
        """Read the clock: a step begins, or a request arrives between two."""
        self._cached_tokens.clear()
        self.now = self._clock.now()

    @property
    def running(self) -> Sequence[RequestView]:
        return list(self._running.ranked)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_decodes(self) -> int:
        return self._running.num_decodes

    @property
    def num_free_blocks(self) -> int:
        return self._kv.num_free_blocks

    @property
    def num_blocks(self) -> int:
        return self._kv.num_blocks

    def cached_tokens(self, request: RequestView) -> int:
        request_id = request.request_id
        tokens = self._cached_tokens.get(request_id)
        if tokens is None:
            tokens = self._cached_tokens[request_id] = self._kv.peek_cached_tokens(self._live[request_id].request)
        return tokens

    def default_victim(self, candidates: Sequence[RequestView], needy: RequestView) -> RequestView | None:
        if not candidates:
            return None
        named = self._victims.choose(candidates, needy, self)
        if named is not None and named is not candidates[-1] and named not in candidates:
            raise InvariantError(f"{type(self._victims).__name__}.choose named {named!r}, which is not a candidate")
        return named


class CheckedPolicy:
    """Asks a policy, checks its answers, and finds the requests that it names.

    Every method that asks raises InvariantError where the answer is not one that `SchedulingPolicy`
    allows, with the answer and what would be right.

    Attributes:
        view: The policy's view of the scheduler.
        wake_time: Time on the engine's clock up to which it has put off admissions in this step, or
            None.
    """

    def __init__(self, policy: SchedulingPolicy, context: SchedulerContext, live: LiveRequests) -> None:
        self.view = StepView(context, live)
        self.wake_time: float | None = None
        self._policy = policy
        self._live = live

    @property
    def name(self) -> str:
        """Name of the policy's class, for messages."""
        return type(self._policy).__name__

    @property
    def preemptive(self) -> bool:
        """Whether a waiting request may displace running ones."""
        return self._policy.preemptive

    def start(self) -> None:
        """Show the policy the limits, before any request."""
        self._policy.start(self.view)

    def begin_step(self) -> int:
        """Number of the step that begins. What was put off in the step before is asked again."""
        self.view.begin_step()
        self.wake_time = None
        return self.view.step

    # -- decisions ---------------------------------------------------------------------------------

    def split(self) -> Split:
        """The split of this step's tokens."""
        split = self._policy.split(self.view)
        if not isinstance(split, Split) or not split.is_valid:
            raise InvariantError(
                f"{self.name}.split gave {split}: a Split with chunk of at least 1, prefill and admit of at least 0, "
                "first 'decode' or 'prefill'"
            )
        return split

    def choose(self) -> SchedulingState | None:
        """The next request to admit. None: no more in this step. A Delay sets `wake_time`."""
        named = self._policy.choose(self.view)
        if named is None:
            return None
        if isinstance(named, Delay):
            self._delay(named)
            return None
        state = self._find(named, "choose")
        if state.phase is not Phase.WAITING:
            raise InvariantError(f"{self.name}.choose named {state!r}, which does not wait")
        return state

    def find_refusal(self, state: SchedulingState) -> str | None:
        """The reason for which it refuses a request, if it does."""
        reason = self._policy.admit(state, self.view)
        if reason is not None and not isinstance(reason, str):
            raise InvariantError(f"{self.name}.admit gave {reason!r}: a reason in words, or None")
        return reason

    def rank(self, state: SchedulingState) -> Rank:
        """The rank of a request from now on."""
        rank = self._policy.rank(state, self.view)
        parts = rank if isinstance(rank, tuple) else (rank,)
        if rank != rank or any([part != part for part in parts]):  # a tuple of NaN may equal itself
            raise InvariantError(f"{self.name}.rank gave {rank!r}: a rank must be comparable, not NaN")
        return rank

    def lane(self, state: SchedulingState) -> Hashable:
        """The waiting lane of a request."""
        return self._policy.lane(state)

    def lease(self, state: SchedulingState) -> int | None:
        """Output tokens after which the rank of a running request is asked again; None: never."""
        tokens = self._policy.lease(state, self.view)
        if tokens is not None and tokens < 1:
            raise InvariantError(f"{self.name}.lease gave {tokens}: at least 1, or None for never")
        return tokens

    def victim(self, candidates: RankedList, needy: SchedulingState) -> SchedulingState | None:
        """The candidate that gives way to a request. None: none does, or it does itself."""
        named = self._policy.victim(list(candidates), needy, self.view)
        if named is None:
            return None
        victim = self._find(named, "victim")
        if victim not in candidates:
            raise InvariantError(
                f"{self.name}.victim named {victim!r} for {needy!r}: a victim must be one of the candidates, which for "
                "a waiting request are those that rank strictly after it"
            )
        return victim

    # -- events ------------------------------------------------------------------------------------

    def added(self, state: SchedulingState) -> None:
        """A request was accepted."""
        self._policy.added(state, self.view)

    def admitted(self, state: SchedulingState) -> None:
        """A request holds a seat and blocks."""
        self._policy.admitted(state, self.view)

    def preempted(self, state: SchedulingState) -> None:
        """A request has lost them."""
        self._policy.preempted(state, self.view)

    def ended(self, state: SchedulingState) -> None:
        """A request is over."""
        self._policy.ended(state, self.view)

    # ----------------------------------------------------------------------------------------------

    def _find(self, named: RequestView, decision: str) -> SchedulingState:
        """Only the id counts, so that a policy may hold proxies."""
        state = self._live.get(named.request_id)
        if state is None:
            raise InvariantError(f"{self.name}.{decision} named {named.request_id!r}: no such request")
        return state

    def _delay(self, delay: Delay) -> None:
        if not self.view.now < delay.until < math.inf:
            raise InvariantError(
                f"{self.name}.choose gave a Delay until {delay.until}: it must be finite and after now, which is "
                f"{self.view.now}"
            )
        self.wake_time = delay.until
