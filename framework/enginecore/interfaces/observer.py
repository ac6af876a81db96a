"""Observer: receives a record per step and per request, never per token."""

import msgspec

from enginecore.messages import FinishReason, SchedulerOutput, SchedulerStats


class StepRecord(msgspec.Struct, frozen=True):
    """One settled step.

    Attributes:
        step: Serial number.
        started: Seconds on the engine's clock when it was scheduled.
        settled: Seconds on the engine's clock when its results were applied.
        num_requests: Requests in the batch.
        num_tokens: Tokens computed.
        batches_in_flight: Batches in flight when it was submitted, this one included.
        stats: The scheduler's gauges and counters after the step.
        scheduled: The step's plan, the engine's own object: read it only.
    """

    step: int
    started: float
    settled: float
    num_requests: int
    num_tokens: int
    batches_in_flight: int
    stats: SchedulerStats
    scheduled: SchedulerOutput


class RequestRecord(msgspec.Struct, frozen=True):
    """One ended request.

    Attributes:
        request_id: Id of the request.
        finish_reason: Why the request ended.
        arrival_time: Seconds on the engine's clock.
        ended: Seconds on the engine's clock.
        num_prompt_tokens: Length of the prompt.
        num_output_tokens: Tokens sampled and accepted.
        num_cached_tokens: Prompt tokens found in the prefix cache at the first admission.
        num_preemptions: How often the request was preempted.
        error: Message of the error, with reason ERROR.
    """

    request_id: str
    finish_reason: FinishReason
    arrival_time: float
    ended: float
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    num_preemptions: int
    error: str | None = None


class Observer:
    """Receives records on the engine core's thread. Subclass it and override what you want; it
    changes nothing.
    """

    __slots__ = ()

    def step_finished(self, record: StepRecord, /) -> None:
        """A step was settled. Default: ignored."""

    def request_finished(self, record: RequestRecord, /) -> None:
        """A request ended. Default: ignored."""
