"""What a metric is, over which requests it is taken, and why one may be refused."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from enginecore.errors import ConfigurationError, EngineCoreError
from enginecore_lab.comparison import Direction
from enginecore_lab.run import RequestRun, Run
from enginecore_lab.workload import WorkloadRequest

Alone = Callable[[WorkloadRequest], float]
"""Seconds that a request would take with the engine to itself."""


class MetricRefused(EngineCoreError):
    """This run cannot say what the metric asks; the message says why."""


class TooFewRequests(MetricRefused):
    """The run has too few requests for it: a figure would be an accident."""


@dataclass(frozen=True, slots=True)
class Window:
    """Which requests count, by their place in the workload and never by time, so that it is the same in every arm.

    Attributes:
        skip_first: So many at the beginning meet an idle engine.
        skip_last: So many at the end meet one that empties.
    """

    skip_first: int = 0
    skip_last: int = 0

    def __post_init__(self) -> None:
        if self.skip_first < 0 or self.skip_last < 0:
            raise ConfigurationError(f"skip_first and skip_last must be at least 0, got {self}")

    def of(self, run: Run) -> Sequence[RequestRun]:
        """The requests that count.

        Raises:
            TooFewRequests: none does.
        """
        chosen = run.requests[self.skip_first : max(len(run.requests) - self.skip_last, 0)]
        if not chosen:
            raise TooFewRequests(
                f"skip_first = {self.skip_first} and skip_last = {self.skip_last} leave none of {len(run.requests)} "
                "requests"
            )
        return chosen


@dataclass(frozen=True, slots=True)
class Slo:
    """What a request must meet to be good, in seconds; None: anything will do. A request's own terms go before these.

    Attributes:
        ttft: To its first token.
        tpot: Per output token after the first. A request of one token meets it.
        e2e: To its last token.
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


class Compute(Protocol):
    """Makes the figure."""

    def __call__(self, run: Run, window: Window, slo: Slo, alone: Alone | None = None, /) -> float:
        """The metric of this run.

        Raises:
            MetricRefused: it has none that means anything.
        """
        ...


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: As experiments name it.
        unit: "s"; "1/s"; "" for shares and counts.
        direction: Which way is better.
        summary: One line: what it is.
        compute: Its value for a run: `compute(run, window, slo, alone)`. Requests that failed or did not end are never
            left out: in latencies they are infinitely late. So a quantile that lands among them is infinite, and a mean
            with one of them always.
        is_of_run: Whether it is of the whole run, whatever the window.
    """

    name: str
    unit: str
    direction: Direction
    summary: str
    compute: Compute
    is_of_run: bool = False
