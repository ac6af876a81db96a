"""Observers: what they are told, per step and per request, never per token."""

from typing import Protocol

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
        batches_in_flight: Batches in flight when it was submitted, itself included.
        stats: The scheduler's gauges and counters after it.
        scheduled: Its plan. The engine's own, to be read only.
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
    """One ended request."""

    request_id: str
    finish_reason: FinishReason
    arrival_time: float
    ended: float
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    num_preemptions: int
    error: str | None = None


class Observer(Protocol):
    """Is told on the engine core's thread. What it is told of is over; it changes nothing."""

    def step_finished(self, record: StepRecord, /) -> None:
        """A step was settled."""
        ...

    def request_finished(self, record: RequestRecord, /) -> None:
        """A request ended."""
        ...
