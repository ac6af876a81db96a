"""Scheduler: which requests run in the next step, with how many tokens each."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping

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


class Scheduler(ABC):
    """Owns all requests from `add_request` to their terminal output. Subclass it.

    Called by the engine core only, on one thread. Steps in flight are answered in order. With an
    executor whose `max_concurrent_batches` is above 1, `schedule` is called again before the step
    before it was answered.
    """

    __slots__ = ()

    @abstractmethod
    def add_request(self, request: Request) -> None:
        """Queue a request. One that can never run ends at once, by an output with reason ERROR that
        says why.

        Raises:
            InvalidRequestError: a live request has the same id; nothing is changed.
        """

    @abstractmethod
    def abort_requests(self, request_ids: Iterable[str]) -> None:
        """End these requests without an output, whatever their state: their client closed them.

        Unknown ids are ignored.
        """

    @abstractmethod
    def finish_requests(self, request_ids: Iterable[str], reason: FinishReason, error: str | None = None) -> None:
        """End these requests for the engine: each gets a terminal output with this reason. Unknown
        ids are ignored.
        """

    def has_request(self, request_id: str) -> bool:
        """Whether an accepted request of this id has not ended. Default: a scan of
        `unfinished_requests`.
        """
        return any(request.request_id == request_id for request in self.unfinished_requests)

    @abstractmethod
    def schedule(self) -> SchedulerOutput:
        """Plan the next step and advance `num_scheduled_tokens`. An empty plan is neither executed
        nor answered.
        """

    def get_grammar_bitmask(self, scheduled: SchedulerOutput) -> GrammarOutput | None:
        """Foreseen (structured output): which tokens are allowed to the constrained requests of a
        step. Default: None, no scheduled request is constrained.

        Asked once per step, when it is the oldest in flight: every step before it was settled, so
        all tokens before those of this step are known. Its forward pass may run meanwhile.
        """
        return None

    @abstractmethod
    def update_from_output(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> Outputs:
        """Settle the oldest step in flight: advance `num_computed_tokens`, accept tokens, end
        finished requests.

        Returns the outputs of the step, together with all outputs that were due before. A scheduled
        request that `output` lacks or names in `errors` ends with reason ERROR; others are not
        affected.
        """

    @abstractmethod
    def take_outputs(self) -> Outputs:
        """Outputs that are due although no step returned, of refused or finished requests. Each is
        given once.
        """

    @abstractmethod
    def has_requests(self) -> bool:
        """Whether there is anything left to schedule, settle or report: unfinished requests, ids of
        finished ones that the workers have not received, or outputs not taken.
        """

    @property
    @abstractmethod
    def has_outputs(self) -> bool:
        """Whether `take_outputs` has outputs to give."""

    @property
    def wake_time(self) -> float | None:
        """When to call `schedule` again, in seconds on the engine's clock, if it put requests off
        and its last plan was empty. Default: None, it waits for no time.

        An empty plan without a wake time, while requests wait and nothing is in flight, is a fault.
        """
        return None

    @property
    @abstractmethod
    def unfinished_requests(self) -> Collection[Request]:
        """Requests that are accepted and have not ended, in order of arrival."""

    @abstractmethod
    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Forget all cached blocks; whether it was done.

        While requests hold blocks: False and nothing changes, or, with `reset_running_requests`,
        all of them are preempted first and resume later with the same output. Blocks that steps in
        flight may still write to, of an executor that runs out of order, are held too: False even
        then.
        """

    @abstractmethod
    def get_stats(self) -> SchedulerStats:
        """Gauges and counters."""

    @abstractmethod
    def check_invariants(self) -> None:
        """Verify the scheduler's own state and the KV cache manager's.

        Raises:
            InvariantError: what does not hold.
        """
