"""A run as metrics see it: the requests that count, the steps, and the terms."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from enginecore.errors import ConfigurationError
from enginecore.messages import EngineInfo
from enginecore_lab.interfaces import Alone, Slo, TooFewRequests
from enginecore_lab.run import RequestRun, Run, StepSeries


@dataclass(frozen=True, slots=True)
class Window:
    """Which requests count, by their place in the workload and never by time, so that it is the same in every arm.

    Attributes:
        skip_first: Requests at the beginning, which meet an idle engine.
        skip_last: Requests at the end, which meet an engine that empties.
    """

    skip_first: int = 0
    skip_last: int = 0

    def __post_init__(self) -> None:
        if self.skip_first < 0 or self.skip_last < 0:
            raise ConfigurationError(f"skip_first and skip_last must be at least 0, got {self}")

    def of(self, run: Run) -> Sequence[RequestRun]:
        """The requests that count.

        Raises:
            TooFewRequests: the window leaves none.
        """
        chosen = run.requests[self.skip_first : max(len(run.requests) - self.skip_last, 0)]
        if not chosen:
            raise TooFewRequests(
                f"skip_first = {self.skip_first} and skip_last = {self.skip_last} leave none of {len(run.requests)} "
                "requests"
            )
        return chosen


@dataclass(frozen=True, slots=True)
class RunView:
    """Fills `MeasuredRun` with a run, a window and the terms."""

    run: Run
    window: Window = field(default_factory=Window)
    slo: Slo = field(default_factory=Slo)
    alone: Alone | None = None

    @property
    def requests(self) -> Sequence[RequestRun]:
        return self.window.of(self.run)

    @property
    def all_requests(self) -> Sequence[RequestRun]:
        return self.run.requests

    @property
    def steps(self) -> StepSeries:
        return self.run.steps

    @property
    def makespan(self) -> float:
        return self.run.makespan

    @property
    def info(self) -> EngineInfo:
        return self.run.info
