"""Checks of the scheduler's own books. Slow; for tests and `debug.check_invariants`."""

from enginecore.errors import InvariantError
from enginecore.interfaces import KVCacheManager
from enginecore.request import RequestStatus
from enginecore.scheduling.lifecycle import Lifecycle
from enginecore.scheduling.state import Phase, SchedulingState


def check(lives: Lifecycle, kv: KVCacheManager, max_num_seqs: int) -> None:
    """Verify that every request stands in one place, with the blocks and cursors that belong there.

    Raises:
        InvariantError: what does not hold.
    """
    _check_places(lives)
    if len(lives.running) > max_num_seqs:
        raise InvariantError(f"{len(lives.running)} requests hold seats, of {max_num_seqs}")
    for state in lives.states.values():
        _check_request(state, kv)
    unfreed = any(batch.unfreed for batch in lives.in_flight)
    if not lives.running and not unfreed and kv.num_free_blocks != kv.num_blocks:
        raise InvariantError(f"nobody runs, and {kv.num_blocks - kv.num_free_blocks} blocks are still referenced")


def _check_places(lives: Lifecycle) -> None:
    running = lives.running
    places = {
        Phase.WAITING: list(lives.waiting),
        Phase.PREFILL: list(running.prefilling),
        Phase.DECODE: running.decoding,
        Phase.DRAIN: list(running.draining),
    }
    for phase, states in places.items():
        for state in states:
            if state.phase is not phase or lives.states.get(state.request_id) is not state:
                raise InvariantError(f"{state!r} stands among those in {phase.name}")
    placed = [state for states in places.values() for state in states]
    if len(placed) != len(set(placed)) or len(placed) != len(lives.states):
        raise InvariantError(f"{len(lives.states)} live requests, {len(placed)} places taken by {len(set(placed))}")
    ranked = list(running.ranked)
    if set(ranked) != {*running.prefilling, *running.decoding} or ranked != sorted(ranked, key=lambda s: s.order):
        raise InvariantError("the order of victims is not the order of those in prefill and decode")


def _check_request(state: SchedulingState, kv: KVCacheManager) -> None:
    request = state.request
    held = len(kv.get_block_ids(request)[0])
    if held != state.num_blocks:
        raise InvariantError(f"{state!r} holds {held} blocks, the scheduler counts {state.num_blocks}")
    if not 0 <= request.num_computed_tokens <= request.num_scheduled_tokens <= held * kv.block_size:
        raise InvariantError(f"cursors out of order or past the {held} blocks held: {state!r}")
    if (request.status is RequestStatus.RUNNING) != (state.phase is not Phase.WAITING):
        raise InvariantError(f"status and phase differ: {state!r}")
    if state.phase is Phase.WAITING and request.num_scheduled_tokens:
        raise InvariantError(f"waiting with scheduled tokens: {state!r}")
    if state.phase is not Phase.WAITING and request.num_late_tokens:
        raise InvariantError(f"running with {request.num_late_tokens} late tokens: {state!r}")
