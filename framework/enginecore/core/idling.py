"""Idling while nothing can run: the core waits for the scheduler, or fails for want of progress."""

from enginecore.clock import Clock
from enginecore.errors import InvariantError
from enginecore.interfaces import Scheduler
from enginecore.messages import EngineInfo

NAP = 0.001
"""Seconds to wait at a time: something may arrive."""


def nap_until_wake_time(scheduler: Scheduler, clock: Clock, info: EngineInfo) -> None:
    """Let some time pass: nothing is in flight, and the scheduler planned nothing for the requests it has.

    Raises:
        InvariantError: it waits for no time either, so that nothing would ever run again.
    """
    wake_time = scheduler.wake_time
    if wake_time is None:
        raise InvariantError(_no_progress(scheduler, info))
    clock.wait(deadline=min(wake_time, clock.now() + NAP))


def _no_progress(scheduler: Scheduler, info: EngineInfo) -> str:
    unfinished = scheduler.unfinished_requests
    stats = scheduler.get_stats()
    return (
        f"no progress: scheduler {info.components['scheduler']!r} schedules nothing although {len(unfinished)} "
        f"requests are unfinished and none is in flight; the first is {next(iter(unfinished), None)!r}; "
        f"{stats.num_free_blocks} of {stats.num_blocks} blocks are free, max_num_batched_tokens = "
        f"{info.max_num_batched_tokens}, max_num_seqs = {info.max_num_seqs}"
    )
