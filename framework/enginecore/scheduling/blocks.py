"""Blocks of requests: given out, published, and freed once no step in flight writes to them."""

from collections.abc import Collection, Sequence

from enginecore.errors import InvariantError
from enginecore.interfaces import CachedPrefix, KVCacheManager
from enginecore.messages import BlockIds
from enginecore.scheduling.queues import LiveRequests
from enginecore.scheduling.state import SchedulingState
from enginecore.scheduling.step import StepsInFlight


class RequestBlocks:
    """Gives blocks of the KV cache to requests and takes them back, and counts what each one holds.

    An executor that runs steps out of order may write to a block after its request has lost it.
    Such blocks stay with the request until the steps in flight have returned: they are on their
    way. Meanwhile the request is not admitted again, and no other one is preempted for want of
    blocks.

    Attributes:
        num_blocks: Blocks in the pool.
        block_size: Tokens per block.
    """

    def __init__(self, manager: KVCacheManager, in_flight: StepsInFlight, *, in_order: bool) -> None:
        self._manager = manager
        self._in_flight = in_flight
        self._in_order = in_order
        self.num_blocks = manager.num_blocks
        self.block_size = manager.block_size
        self._last_writers: dict[SchedulingState, int] = {}  # step after which blocks come back

    @property
    def capacity(self) -> int:
        """Tokens that the whole pool holds."""
        return self.num_blocks * self.block_size

    # -- out ---------------------------------------------------------------------------------------

    def find_prefix(self, state: SchedulingState) -> CachedPrefix:
        """The cached prefix of a request. Valid until blocks are given out or released."""
        return self._manager.get_computed_blocks(state.request)

    def num_needed(self, state: SchedulingState, prefix: CachedPrefix) -> int:
        """Free blocks that it takes to hold all known tokens of a request, behind this prefix."""
        return self._manager.num_blocks_to_allocate(state.request, state.request.num_tokens, prefix)

    def can_provide(self, num_blocks: int, prefix: CachedPrefix, victims: Sequence[SchedulingState]) -> bool:
        """Whether so many blocks are free beside this prefix once the victims are preempted."""
        short = num_blocks - self._manager.num_free_blocks
        if short <= 0:
            return True
        if short > sum(victim.num_blocks for victim in victims):
            return False
        # others may hold some of the victims' blocks, too
        return short <= self._manager.num_freeable_blocks([victim.request for victim in victims], prefix)

    def allocate(self, state: SchedulingState, num_tokens: int, prefix: CachedPrefix | None = None) -> BlockIds | None:
        """Give a request blocks for its first `num_tokens` tokens, all of them or none.

        Returns the blocks that were added, per KV cache group; None: too few are free.
        """
        block_ids = self._manager.allocate_slots(state.request, num_tokens, prefix)
        if block_ids is not None:
            state.num_blocks += len(block_ids[0])
            state.num_slots = state.num_blocks * self.block_size
        return block_ids

    def publish(self, state: SchedulingState) -> None:
        """Let others hit the blocks that are full of computed tokens by now."""
        request, size = state.request, self.block_size
        self._manager.cache_blocks(request, request.num_computed_tokens)
        state.publish_at = (request.num_computed_tokens // size + 1) * size

    # -- back --------------------------------------------------------------------------------------

    @property
    def are_written(self) -> bool:
        """Whether steps in flight may write to blocks that another request holds by then."""
        return bool(self._in_flight) and not self._in_order

    @property
    def on_their_way(self) -> Collection[SchedulingState]:
        """Requests that lost their blocks, which are not free yet."""
        return self._last_writers.keys()

    def release(self, state: SchedulingState) -> None:
        """Free all blocks of a request, now or when no step in flight may write to them."""
        if self.are_written:
            self._last_writers[state] = self._in_flight[-1].step
        else:
            self._free(state)

    def step_returned(self, step: int) -> None:
        """Free the blocks that only this step and those before it could write to."""
        if self._last_writers:
            for state in [state for state, last in self._last_writers.items() if last <= step]:
                del self._last_writers[state]
                self._free(state)

    def _free(self, state: SchedulingState) -> None:
        self._manager.free(state.request)
        state.num_blocks = state.num_slots = 0

    def check_invariants(self, live: LiveRequests) -> None:
        """Verify that each request holds the blocks that are counted, and none is lost.

        Raises:
            InvariantError: what does not hold.
        """
        manager = self._manager
        for state in live:
            request, held = state.request, len(manager.get_block_ids(state.request)[0])
            if held != state.num_blocks:
                raise InvariantError(f"{state!r} holds {held} blocks, the scheduler counts {state.num_blocks}")
            if not 0 <= request.num_computed_tokens <= request.num_scheduled_tokens <= held * self.block_size:
                raise InvariantError(f"cursors out of order or past the {held} blocks held: {state!r}")
        num_referenced = self.num_blocks - manager.num_free_blocks
        if num_referenced and not live.running and not self.on_their_way:
            raise InvariantError(f"no request runs, and {num_referenced} blocks are still referenced")
