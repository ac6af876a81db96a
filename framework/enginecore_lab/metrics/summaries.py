"""Means and quantiles, refused where they would mislead."""

from collections.abc import Callable
from math import inf

import numpy as np

from enginecore_lab.interfaces import TooFewRequests
from enginecore_lab.metrics.samples import Samples

TAIL = 10
"""Samples that must lie beyond a quantile: a P99 takes 1,000."""

Summarize = Callable[[Samples], float]


def mean(samples: Samples) -> float:
    """Infinite if one of them is."""
    return float(_some(samples).mean())


def largest(samples: Samples) -> float:
    """The largest of all."""
    return float(_some(samples).max())


def percentile(percent: int, samples: Samples) -> float:
    """The value that so many percent do not exceed, between two samples by proportion.

    Raises:
        TooFewRequests: fewer than `TAIL` samples lie beyond it.
    """
    count = len(samples)
    if count * min(percent, 100 - percent) < TAIL * 100:
        raise TooFewRequests(
            f"P{percent} of {count} samples: fewer than {TAIL} lie beyond it; it takes at least "
            f"{-(-TAIL * 100 // min(percent, 100 - percent))}"
        )
    place, part = divmod(percent * (count - 1), 100)
    low, high = np.partition(samples, [place, place + 1])[[place, place + 1]]
    if part == 0:
        return float(low)
    return inf if high == inf else float(low + (high - low) * part / 100)


def _some(samples: Samples) -> Samples:
    if not len(samples):
        raise TooFewRequests("no request of this run has such a value")
    return samples
