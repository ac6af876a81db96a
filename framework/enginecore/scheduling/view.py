"""What a policy sees of the scheduler. Costs nothing until read."""

from collections.abc import Sequence

from enginecore.errors import InvariantError
from enginecore.interfaces import KVCacheManager, RequestView
from enginecore.plugin import SchedulerContext
from enginecore.scheduling.policy import WorstRank
from enginecore.scheduling.queues import RunningRequests, WaitingQueue
from enginecore.scheduling.state import SchedulingState


class StepView:
    """Fills `SchedulerView`. The scheduler moves `step` and `now` on; everything else is read through."""

    def __init__(
        self,
        context: SchedulerContext,
        states: dict[str, SchedulingState],
        waiting: WaitingQueue,
        running: RunningRequests,
    ) -> None:
        self.step = 0
        self.now = context.clock.now()
        self.waiting = waiting
        self.max_num_seqs = context.max_num_seqs
        self.max_num_batched_tokens = context.max_num_batched_tokens
        self.enable_chunked_prefill = context.enable_chunked_prefill
        self.block_size = context.kv_cache_manager.block_size
        self._clock = context.clock
        self._kv: KVCacheManager = context.kv_cache_manager
        self._states = states
        self._running = running
        self._cached_tokens: dict[SchedulingState, int] = {}
        self._victims = context.victim or WorstRank()

    def tick(self) -> None:
        """The next step begins."""
        self.step += 1
        self.refresh()

    def refresh(self) -> None:
        """Something happens, in a step or between two."""
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
        state = self._states[request.request_id]
        tokens = self._cached_tokens.get(state)
        if tokens is None:
            tokens = self._cached_tokens[state] = self._kv.peek_cached_tokens(state.request)
        return tokens

    def default_victim(self, candidates: Sequence[RequestView], needy: RequestView) -> RequestView | None:
        if not candidates:
            return None
        named = self._victims.choose(candidates, needy, self)
        if named is not None and named is not candidates[-1] and named not in candidates:
            raise InvariantError(f"{type(self._victims).__name__}.choose named {named!r}, which is not a candidate")
        return named
