"""What a failed step says."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from enginecore.errors import StepError
from enginecore.messages import SchedulerOutput


@contextmanager
def step_errors(scheduled: SchedulerOutput) -> Iterator[None]:
    """An error in here says what was scheduled."""
    try:
        yield
    except Exception as error:
        raise StepError(f"{_describe(scheduled)} failed: {type(error).__name__}: {error}") from error


def _describe(scheduled: SchedulerOutput, most: int = 20) -> str:
    """What was scheduled, by ids and counts. Never a prompt."""
    counts = scheduled.num_scheduled_tokens
    shown = ", ".join(f"{request_id!r}: {tokens}" for request_id, tokens in itertools.islice(counts.items(), most))
    more = f" and {len(counts) - most} more" if len(counts) > most else ""
    return (
        f"step {scheduled.step} ({scheduled.total_num_scheduled_tokens} tokens of {len(counts)} requests: "
        f"{shown}{more}; {len(scheduled.new_requests)} new, {len(scheduled.finished_ids)} finished, "
        f"{len(scheduled.preempted_ids)} preempted)"
    )
