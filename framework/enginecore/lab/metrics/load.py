"""Whether requests came faster than they were served, so that their latencies say how long the run was."""

from dataclasses import dataclass

import numpy as np

from enginecore.lab.run import Run

GRID = 200
"""Points in time at which the queue is looked at."""

STEADY = 0.8
"""Correlation with time from which growth is not taken for chance."""

FEW = 5
"""Waiting requests that are no overload."""


@dataclass(frozen=True, slots=True)
class Load:
    """While requests arrived: how fast they came, how fast they went, and how the queue grew.

    Attributes:
        offered: Requests per second that came.
        served: Requests per second that ended.
        rise: Waiting requests at the end more than at the beginning, by a straight line through all.
        mean_waiting: On average.
        steadiness: Correlation of the number that waited with time.
    """

    offered: float
    served: float
    rise: float
    mean_waiting: float
    steadiness: float

    @property
    def utilization(self) -> float:
        """Offered over served: above 1 the queue grows for as long as the run lasts."""
        return self.offered / self.served if self.served else np.inf

    @property
    def is_saturated(self) -> bool:
        """Whether the queue did nothing but grow: then there is no steady state whose latencies could be compared."""
        return self.steadiness > STEADY and self.rise > max(self.mean_waiting, FEW)


def load_of(run: Run) -> Load | None:
    """Of a run whose requests come by themselves; None where clients wait for answers, or all come at once."""
    arrivals = np.array([each.arrival for each in run.requests if np.isfinite(each.arrival)])
    if run.workload.loop == "closed" or not len(run.steps.settled) or not len(arrivals) or arrivals.max() <= 0:
        return None
    last = float(arrivals.max())
    ends = np.array([each.ended for each in run.requests if each.ended is not None])
    rise, mean, steadiness = _growth(run, last)
    return Load(
        offered=len(arrivals) / last,
        served=float(np.count_nonzero(ends <= last)) / last,
        rise=rise,
        mean_waiting=mean,
        steadiness=steadiness,
    )


def is_saturated(run: Run) -> bool:
    """Whether its queue did nothing but grow. A verdict on latencies of such a run is one on its length."""
    load = load_of(run)
    return load is not None and load.is_saturated


def _growth(run: Run, last: float) -> tuple[float, float, float]:
    """Rise, mean and correlation with time of the number of waiting requests, from the start to the last arrival."""
    times = np.linspace(0.0, last, GRID)
    settled = np.frombuffer(run.steps.settled, dtype=np.float64)
    waiting = np.concatenate(([0], np.frombuffer(run.steps.num_waiting, dtype=np.int64)))
    queue = waiting[np.searchsorted(settled, times, side="right")].astype(np.float64)
    if queue.min() == queue.max():
        return 0.0, float(queue.mean()), 0.0
    slope = float(np.polyfit(times, queue, 1)[0])
    return slope * last, float(queue.mean()), float(np.corrcoef(times, queue)[0, 1])
