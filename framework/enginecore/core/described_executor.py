"""DescribedExecutor: the executor as the engine core calls it. A step that fails says what was scheduled."""

import itertools
from concurrent.futures import Future
from typing import Any

from enginecore.errors import StepError
from enginecore.interfaces import Executor
from enginecore.messages import GrammarOutput, ModelRunnerOutput, SchedulerOutput

SHOWN = 20
"""Requests of a step that an error names."""


class DescribedExecutor:
    """An executor whose errors while a step is submitted name that step; all else is the executor's own.

    Args:
        executor: The executor inside.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def execute_model(self, scheduled: SchedulerOutput) -> "Future[ModelRunnerOutput | None]":
        try:
            return self._executor.execute_model(scheduled)
        except Exception as error:
            raise step_error(scheduled, error) from error

    def sample_tokens(self, step: int, grammar: GrammarOutput | None) -> "Future[ModelRunnerOutput]":
        try:
            return self._executor.sample_tokens(step, grammar)
        except Exception as error:
            raise StepError(f"sampling step {step} failed: {type(error).__name__}: {error}") from error


def step_error(scheduled: SchedulerOutput, error: Exception) -> StepError:
    """The failure of a step: what was scheduled, by ids and counts, never a prompt, and what went wrong."""
    counts = scheduled.num_scheduled_tokens
    shown = ", ".join(f"{request_id!r}: {tokens}" for request_id, tokens in itertools.islice(counts.items(), SHOWN))
    more = f" and {len(counts) - SHOWN} more" if len(counts) > SHOWN else ""
    return StepError(
        f"step {scheduled.step} ({scheduled.total_num_scheduled_tokens} tokens of {len(counts)} requests: "
        f"{shown}{more}; {len(scheduled.new_requests)} new, {len(scheduled.finished_ids)} finished, "
        f"{len(scheduled.preempted_ids)} preempted) failed: {type(error).__name__}: {error}"
    )
