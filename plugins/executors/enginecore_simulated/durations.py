"""How long steps take: as the cost model says, or as they took when they were recorded."""

from collections.abc import Callable, Sequence
from pathlib import Path

from enginecore.errors import EngineCoreError
from enginecore_simulation import CostModel, StepFeatures
from enginecore_simulation.samples import read_seconds

Durations = Callable[[StepFeatures], float]


def make_durations(step_times: Sequence[float] | Path | None, costs: CostModel) -> Durations:
    """The source of each next step's seconds.

    Raises:
        ConfigurationError: the file of step times cannot be used.
    """
    if step_times is None:
        return costs.seconds
    return _Recorded(read_seconds(step_times) if isinstance(step_times, Path) else step_times)


class _Recorded:
    """Gives out a recording, one step after another."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self._seconds = seconds
        self._next = 0

    def __call__(self, features: StepFeatures) -> float:
        if self._next == len(self._seconds):
            raise EngineCoreError(
                f"executor.simulated.step_times holds {self._next} steps, and this run needs more: it is not the run "
                "that was recorded"
            )
        self._next += 1
        return self._seconds[self._next - 1]
