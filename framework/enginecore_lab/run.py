"""Records of a run: what one workload gave on one configuration, per request and per step, by the engine's clock."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from enginecore.messages import EngineInfo, FinishReason
from enginecore_lab.workload import Workload, WorkloadRequest


@dataclass(slots=True)
class RequestRun:
    """Record of one request. Times are seconds from the start of the workload.

    Attributes:
        request: As in the workload.
        arrival: When it was meant to come: the clock of every latency starts here, whenever it was really sent.
        first_scheduled: When its first tokens were put into a step; None: never.
        token_times: When each output token was emitted, in order.
        ended: When it ended; None: it has not.
        finish_reason: Why it ended; None: it has not.
        error: Message of the engine, where the reason is ERROR.
        num_cached_tokens: Prompt tokens found in the prefix cache.
        num_preemptions: How often it lost its blocks.
        pieces: (step, tokens) of every step that computed more than a decode for it, recomputation included.
        preempted_at: When it lost its blocks, each time.
    """

    request: WorkloadRequest
    arrival: float
    first_scheduled: float | None = None
    token_times: "array[float]" = field(default_factory=lambda: array("d"))
    ended: float | None = None
    finish_reason: FinishReason | None = None
    error: str | None = None
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    pieces: list[tuple[int, int]] = field(default_factory=list)
    preempted_at: list[float] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether it got all that it asked for. Whatever did not counts as failed, and is never left out."""
        return self.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)

    @property
    def has_wrong_length(self) -> bool:
        """Whether it is complete, with another number of tokens than was asked for: where a context ends, for one."""
        return self.is_complete and len(self.token_times) != self.request.num_output_tokens

    @property
    def failure(self) -> str:
        """Why it is not complete, in the engine's own words where there are any."""
        if self.finish_reason is None:
            return "it did not end"
        return self.error or f"it ended by {self.finish_reason}"


@dataclass(slots=True)
class StepSeries:
    """One entry per settled step in each column. Times are seconds from the start of the workload."""

    step: "array[int]" = field(default_factory=lambda: array("q"))
    started: "array[float]" = field(default_factory=lambda: array("d"))
    settled: "array[float]" = field(default_factory=lambda: array("d"))
    num_decodes: "array[int]" = field(default_factory=lambda: array("q"))
    num_prefill_tokens: "array[int]" = field(default_factory=lambda: array("q"))
    num_requests: "array[int]" = field(default_factory=lambda: array("q"))
    num_running: "array[int]" = field(default_factory=lambda: array("q"))
    num_waiting: "array[int]" = field(default_factory=lambda: array("q"))
    num_free_blocks: "array[int]" = field(default_factory=lambda: array("q"))


@dataclass(slots=True)
class Run:
    """One arm's run of one workload, to the end.

    Attributes:
        workload: The workload.
        info: Facts and limits in force.
        settings: The arm's complete settings, as plain values.
        requests: In the workload's order.
        steps: In order.
        virtual: Whether time was simulated.
        wall_seconds: Real time of the run.
    """

    workload: Workload
    info: EngineInfo
    settings: Mapping[str, Any]
    requests: Sequence[RequestRun]
    steps: StepSeries
    virtual: bool
    wall_seconds: float

    @property
    def makespan(self) -> float:
        """Seconds from the start of the workload to the end of its last request."""
        return max((each.ended for each in self.requests if each.ended is not None), default=0.0)
