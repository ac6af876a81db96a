"""Base classes of the lab's components: workloads, arrival processes, length distributions and metrics.

A plugin subclasses one of them and offers it as a component of the kind "workload", "arrivals", "lengths" or "metric":

    class Constant(ArrivalProcess):
        def times(self, rng, count):
            return numpy.arange(count) / 10.0

    @hookimpl
    def enginecore_components():
        return [Component(kind="arrivals", name="ten_per_second", factory=lambda settings, context: Constant())]

Factories are called with the component's settings and None.
"""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from enginecore.errors import EngineCoreError
from enginecore.messages import EngineInfo, FinishReason
from enginecore_lab.streams import Streams
from enginecore_lab.workload import Workload, WorkloadRequest

Times = NDArray[np.float64]
"""Seconds, shape (count,)."""

Lengths = NDArray[np.int64]
"""Tokens, shape (count,), each at least 1."""

Direction = Literal["lower", "higher"]
"""Which way a metric is better."""


class WorkloadLoader(ABC):
    """Makes the workload of each replicate: reads it, or draws it."""

    @abstractmethod
    def make(self, streams: Streams, replicate: int) -> Workload:
        """The workload of one replicate: the same for the same streams, in every arm and every process.

        Args:
            streams: Random numbers. A drawn workload draws every replicate anew.
            replicate: From 0. A trace gives its next part.

        Raises:
            ConfigurationError: the workload cannot be made; says why.
        """


class ArrivalProcess(ABC):
    """Draws the times at which requests, or sessions, arrive."""

    @abstractmethod
    def times(self, rng: np.random.Generator, count: int) -> Times:
        """Times of `count` arrivals in seconds from the start, in ascending order. Shape (count,), float64."""


class LengthDistribution(ABC):
    """Draws numbers of tokens, of turns, and of whatever else is counted."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, count: int) -> Lengths:
        """Draw `count` numbers, each at least 1. Shape (count,), int64."""


# -- metrics -------------------------------------------------------------------------------------------------------


class MetricRefused(EngineCoreError):
    """A run cannot say what a metric asks; the message says why."""


class TooFewRequests(MetricRefused):
    """The run has too few requests for the metric: its value would be an accident."""


Alone = Callable[[WorkloadRequest], float]
"""Seconds that a request would take with the engine to itself."""


@dataclass(frozen=True, slots=True)
class Slo:
    """Limits that a good request meets, in seconds; None: no limit. A request's own terms go before
    these.

    Attributes:
        ttft: Seconds to the first token.
        tpot: Per output token after the first. A request of one token meets it.
        e2e: Seconds to the last token.
    """

    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None

    def of(self, request: WorkloadRequest) -> "Slo":
        """The terms of one request.

        Raises:
            MetricRefused: there are none.
        """
        ttft = self.ttft if request.ttft_slo is None else request.ttft_slo
        tpot = self.tpot if request.tpot_slo is None else request.tpot_slo
        if ttft is tpot is self.e2e is None:
            raise MetricRefused(
                f"neither the workload nor slo says what is good enough for request {request.request_id!r}: set "
                "slo.ttft, slo.tpot or slo.e2e"
            )
        return Slo(ttft, tpot, self.e2e)


class MeasuredRequest(Protocol):
    """One request of a run, read only. Times are seconds from the start of the workload.

    Attributes:
        request: The request as the workload has it.
        arrival: When it was due to arrive. Every latency starts here, whenever it was really sent.
        first_scheduled: When its first tokens were put into a step; None: never.
        token_times: When each output token was emitted, in order; float64.
        ended: When it ended; None: it has not.
        finish_reason: Why it ended; None: it has not.
        num_cached_tokens: Prompt tokens found in the prefix cache.
        num_preemptions: How often it lost its KV blocks.
        pieces: (step, tokens) of every step that computed more than a decode for it, recomputation included.
        preempted_at: When it lost its KV blocks, each time.
        is_complete: Whether it got all that it asked for.
        has_wrong_length: Whether it is complete with another number of tokens than it asked for.
    """

    @property
    def request(self) -> WorkloadRequest: ...
    @property
    def arrival(self) -> float: ...
    @property
    def first_scheduled(self) -> float | None: ...
    @property
    def token_times(self) -> "array[float]": ...
    @property
    def ended(self) -> float | None: ...
    @property
    def finish_reason(self) -> FinishReason | None: ...
    @property
    def num_cached_tokens(self) -> int: ...
    @property
    def num_preemptions(self) -> int: ...
    @property
    def pieces(self) -> Sequence[tuple[int, int]]: ...
    @property
    def preempted_at(self) -> Sequence[float]: ...
    @property
    def is_complete(self) -> bool: ...
    @property
    def has_wrong_length(self) -> bool: ...


class MeasuredSteps(Protocol):
    """The settled steps of a run, read only: one entry per step in each column, in order.

    Attributes:
        started: When each step started, in seconds from the start of the workload.
        settled: When each step was settled.
        num_decodes: Requests that decoded one token in it.
        num_prefill_tokens: Tokens computed in it that were known before: prompts, and what was lost by a preemption.
        num_requests: Requests in its batch.
        num_running: Running requests after it.
        num_waiting: Waiting requests after it.
        num_free_blocks: Free KV blocks after it.
    """

    @property
    def started(self) -> "array[float]": ...
    @property
    def settled(self) -> "array[float]": ...
    @property
    def num_decodes(self) -> "array[int]": ...
    @property
    def num_prefill_tokens(self) -> "array[int]": ...
    @property
    def num_requests(self) -> "array[int]": ...
    @property
    def num_running(self) -> "array[int]": ...
    @property
    def num_waiting(self) -> "array[int]": ...
    @property
    def num_free_blocks(self) -> "array[int]": ...


class MeasuredRun(Protocol):
    """One run of one arm as a metric sees it, read only.

    Attributes:
        requests: The requests that count, which are those of the experiment's window. Raises `TooFewRequests` where
            the window leaves none.
        all_requests: All requests of the workload, in its order.
        steps: All settled steps.
        slo: The experiment's terms; `slo.of(request)` gives those of one request.
        alone: Gives the seconds that a request takes alone; None unless the metric says `needs_alone`.
        makespan: Seconds from the start of the workload to the end of its last request.
        info: Facts and limits of the engine.
    """

    @property
    def requests(self) -> Sequence[MeasuredRequest]: ...
    @property
    def all_requests(self) -> Sequence[MeasuredRequest]: ...
    @property
    def steps(self) -> MeasuredSteps: ...
    @property
    def slo(self) -> Slo: ...
    @property
    def alone(self) -> Alone | None: ...
    @property
    def makespan(self) -> float: ...
    @property
    def info(self) -> EngineInfo: ...


class Metric(ABC):
    """One figure of a run. Its component's name is its name in experiments.

    Attributes:
        unit: "s", "1/s", or "" for shares and counts.
        direction: Whether higher or lower is better.
        is_of_run: Whether it is of the whole run, whatever the window.
        needs_alone: Whether it needs the time that each request takes alone, which costs a run more.
    """

    unit: str = ""
    direction: Direction = "lower"
    is_of_run: bool = False
    needs_alone: bool = False

    @property
    def follows_queue(self) -> bool:
        """Whether it grows or falls with the length of the run where the queue only grows: then there is no verdict.

        Latencies do, and what is made of them. The default is whether the unit is "s".
        """
        return self.unit == "s"

    @abstractmethod
    def compute(self, run: MeasuredRun, /) -> float:
        """The value for a run, in `unit`.

        Requests that failed or did not end must not be left out: a policy that starves some would look better.

        Raises:
            MetricRefused: the run has no value that means anything.
        """
