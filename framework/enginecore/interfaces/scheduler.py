"""Scheduler: who runs in the next step, with how many tokens each."""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from enginecore.messages import (
    EngineCoreOutput,
    FinishReason,
    GrammarOutput,
    ModelRunnerOutput,
    SchedulerOutput,
    SchedulerStats,
)
from enginecore.request import Request

Outputs = Mapping[int, list[EngineCoreOutput]]
"""Outputs by client index."""


class Scheduler(Protocol):
    """Owns all requests from `add_request` to their terminal output. Called by the engine core only, on one thread.

    Steps in flight are answered in order. With an executor whose `max_concurrent_batches` is above 1, `schedule` is
    called again before the step before it was answered.
    """

    def add_request(self, request: Request) -> None:
        """Queue it. A request that can never run ends at once, by an output with reason ERROR that says why.

        Raises:
            InvalidRequestError: a live request has the same id; nothing is changed.
        """
        ...

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        """End them without a word, whatever they are doing: their client closed them. Unknown ids are left alone."""
        ...

    def finish_requests(self, request_ids: Iterable[str], reason: FinishReason, error: str | None = None) -> None:
        """End them on the engine's behalf: each gets a terminal output with this reason. Unknown ids are left alone."""
        ...

    def schedule(self) -> SchedulerOutput:
        """Plan the next step and advance `num_scheduled_tokens`. An empty plan is not executed nor answered."""
        ...

    def get_grammar_bitmask(self, scheduled: SchedulerOutput) -> GrammarOutput | None:
        """Foreseen (structured output): None if no scheduled request is constrained."""
        ...

    def update_from_output(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> Outputs:
        """Settle the oldest step in flight: advance `num_computed_tokens`, accept tokens, end what is over.

        Returns what the step gave, together with all outputs that were due before. A scheduled request that
        `output` lacks or names in `errors` ends with reason ERROR; others are not affected.
        """
        ...

    def take_outputs(self) -> Outputs:
        """Outputs that are due although no step returned: refused or finished requests. Each is given once."""
        ...

    def has_requests(self) -> bool:
        """Whether there is anything left to schedule, settle, or say: unfinished requests, ids of finished ones that
        the workers have not heard of, or outputs not taken.
        """
        ...

    @property
    def wake_time(self) -> float | None:
        """When to call `schedule` again, in seconds on the engine's clock, if it put requests off and its last plan was
        empty; None: it waits for no time. An empty plan without one, while requests wait and nothing is in flight, is
        a fault.
        """
        ...

    @property
    def unfinished_requests(self) -> Collection[Request]:
        """Accepted and not ended, in order of arrival."""
        ...

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Forget all cached blocks. While requests hold blocks: False and nothing changes, or, with
        `reset_running_requests`, all of them are preempted first and resume later with the same output. Blocks that
        steps in flight may still write to, of an executor that runs out of order, are held too: False even then.
        """
        ...

    def get_stats(self) -> SchedulerStats:
        """Gauges and counters."""
        ...

    def check_invariants(self) -> None:
        """Verify its own books and the KV cache manager's.

        Raises:
            InvariantError: what does not hold.
        """
        ...
