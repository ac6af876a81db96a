"""Load of a run: whether requests came faster than they were served, so that latencies grow with its length."""

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from enginecore_lab.run import Run

GRID = 200
"""Points in time at which the queue is looked at."""

STEADY = 0.8
"""Correlation with time from which growth is not taken for chance."""

FEW = 5
"""Waiting requests that are no overload."""


class Growth(NamedTuple):
    """Growth of the number of waiting requests, by a straight line through it.

    Attributes:
        rise: More at the end than at the beginning.
        mean: On average.
        steadiness: Correlation with time.
    """

    rise: float
    mean: float
    steadiness: float

    def is_steady(self, least: float) -> bool:
        """Whether it did nothing but grow, by at least so many times its mean."""
        return self.steadiness > STEADY and self.rise > max(least * self.mean, FEW)


@dataclass(frozen=True, slots=True)
class Load:
    """While requests arrived: how fast they came, how fast they went, and how the queue grew.

    Attributes:
        offered: Requests per second that came.
        served: Requests per second that ended.
        whole: From the first arrival to the last.
        later: In the second half of that time, when all seats are taken.
    """

    offered: float
    served: float
    whole: Growth
    later: Growth

    @property
    def utilization(self) -> float:
        """Offered over served: above 1 the queue grows for as long as the run lasts."""
        return self.offered / self.served if self.served else inf

    @property
    def is_saturated(self) -> bool:
        """Whether the queue did nothing but grow: then there is no steady state whose latencies could be compared.

        A straight line from zero rises by twice its mean, and in its second half by two thirds of it. Half of either
        is taken for one. At 95 % of what an engine can do, one run of 300 requests in ten looks like that, too.
        """
        return self.whole.is_steady(1.0) or self.later.is_steady(0.5)


def load_of(run: Run) -> Load | None:
    """Load of a run whose requests come by themselves; None where clients wait for answers, or all
    come at once.
    """
    arrivals = np.array([each.arrival for each in run.requests if np.isfinite(each.arrival)])
    if run.workload.loop == "closed" or not len(run.steps.settled) or not len(arrivals) or arrivals.max() <= 0:
        return None
    last = float(arrivals.max())
    ends = np.array([each.ended for each in run.requests if each.ended is not None])
    times = np.linspace(0.0, last, GRID)
    waiting = _waiting_at(times, run)
    half = GRID // 2
    return Load(
        offered=len(arrivals) / last,
        served=float(np.count_nonzero(ends <= last)) / last,
        whole=_growth(times, waiting),
        later=_growth(times[half:], waiting[half:]),
    )


def is_saturated(run: Run) -> bool:
    """Whether its queue did nothing but grow. A verdict on latencies of such a run is one on its length."""
    load = load_of(run)
    return load is not None and load.is_saturated


def _waiting_at(times: npt.NDArray[np.float64], run: Run) -> npt.NDArray[np.float64]:
    """After the step that was settled last."""
    settled = np.frombuffer(run.steps.settled, dtype=np.float64)
    waiting = np.concatenate(([0], np.frombuffer(run.steps.num_waiting, dtype=np.int64)))
    return waiting[np.searchsorted(settled, times, side="right")].astype(np.float64)


def _growth(times: npt.NDArray[np.float64], waiting: npt.NDArray[np.float64]) -> Growth:
    mean = float(waiting.mean())
    if waiting.min() == waiting.max():
        return Growth(0.0, mean, 0.0)
    slope = float(np.polyfit(times, waiting, 1)[0])
    return Growth(slope * float(times[-1] - times[0]), mean, float(np.corrcoef(times, waiting)[0, 1]))
