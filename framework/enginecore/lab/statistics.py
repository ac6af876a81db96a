"""How sure one can be of a difference between two arms, of which there is one value per replicate in each.

Replicates are paired: both arms got the same workload. Whatever a metric is within a replicate (a mean, a quantile, a
share), what is compared is its mean over replicates.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from enginecore.lab.comparison import Direction, Interval, VerdictName
from enginecore.lab.extras import require

LEVEL = 0.95
FEWEST_TO_RESAMPLE = 10
"""Replicates below which a bootstrap knows too little of the tails; a t interval is used instead."""
_RESAMPLES = 9_999

Floats = NDArray[np.float64]


class Refused(Exception):
    """These values bear no verdict; says why."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an interval says against a margin.

    Attributes:
        name: In a word.
        reason: In a sentence.
    """

    name: VerdictName
    reason: str


def finite_pairs(baseline: ArrayLike, candidate: ArrayLike) -> tuple[Floats, Floats]:
    """Both arms' values as arrays.

    Raises:
        Refused: they are no pairs, there is none, or one is not a number; names it.
    """
    arms = {name: np.asarray(values, float) for name, values in (("baseline", baseline), ("candidate", candidate))}
    shapes = [values.shape for values in arms.values()]
    if shapes[0] != shapes[1] or len(shapes[0]) != 1 or not shapes[0][0]:
        raise Refused(f"the values must be pairs, one for each replicate; their shapes are {shapes[0]} and {shapes[1]}")
    for name, values in arms.items():
        wrong = np.flatnonzero(~np.isfinite(values))
        if wrong.size:
            raise Refused(f"the {name}'s value in replicate {wrong[0]} is {values[wrong[0]]}, not a finite number")
    return arms["baseline"], arms["candidate"]


def mean_interval(differences: ArrayLike, level: float = LEVEL) -> Interval:
    """Of the mean difference: the paired t interval. Differences that are all the same have no width.

    Raises:
        Refused: one difference alone has no spread.
    """
    values = np.asarray(differences, float)
    centre = float(values.mean())
    half = half_width(values, level)
    return Interval(low=centre - half, high=centre + half, level=level, method="paired t")


def half_width(values: Floats, level: float = LEVEL) -> float:
    """Half the width of the t interval of a mean.

    Raises:
        Refused: there are fewer than two values.
    """
    if values.size < 2:
        raise Refused("a single difference has no spread: run more replicates")
    if not np.ptp(values):
        return 0.0
    quantile = require("scipy.stats").t.ppf((1 + level) / 2, values.size - 1)
    return float(quantile * values.std(ddof=1) / np.sqrt(values.size))


def relative_interval(baseline: Floats, candidate: Floats, *, seed: int, level: float = LEVEL) -> Interval | None:
    """Of the change of the mean as a share of the baseline's mean; None where that is 0 or both signs occur.

    A ratio of means is no mean, so pairs are resampled: the bias-corrected and accelerated bootstrap (BCa). With fewer
    than `FEWEST_TO_RESAMPLE` pairs, the t interval of the differences over the baseline's mean.
    """
    if baseline.min() <= 0 <= baseline.max():
        return None
    base, ratios = float(baseline.mean()), candidate / baseline
    if np.ptp(ratios) <= 1e-12 * np.abs(ratios).max():  # rounding: every pair has the same ratio
        change = float(candidate.mean()) / base - 1
        return Interval(low=change, high=change, level=level, method="every pair alike")
    if baseline.size < FEWEST_TO_RESAMPLE:
        return mean_interval((candidate - baseline) / base, level)
    found = require("scipy.stats").bootstrap(
        (candidate, baseline),
        _relative_change,
        paired=True,
        vectorized=True,
        method="BCa",
        confidence_level=level,
        n_resamples=_RESAMPLES,
        rng=np.random.default_rng(seed),
    )
    low, high = (float(end) for end in found.confidence_interval)
    return Interval(low=low, high=high, level=level, method="paired BCa bootstrap")


def _relative_change(candidate: Floats, baseline: Floats, axis: int = -1) -> Floats:
    change: Floats = candidate.mean(axis=axis) / baseline.mean(axis=axis) - 1
    return change


def sign_flip_p(differences: ArrayLike, *, seed: int) -> float:
    """Two-sided p of "no effect": how often a mean as far from 0 comes about if each difference's sign is a coin's.

    All 2^n signs are tried if that is at most 10,000 (n <= 13), else as many drawn ones.
    """
    values = np.asarray(differences, float)
    if not values.any():
        return 1.0
    found = require("scipy.stats").permutation_test(
        (values,),
        lambda x, axis: x.mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=_RESAMPLES,
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values of a family of tests, adjusted so that a false positive among them all stays as rare as in one."""
    if not p_values:
        return []
    adjusted = require("statsmodels.stats.multitest").multipletests(list(p_values), method="holm")[1]
    return [float(value) for value in adjusted]


def judge(interval: Interval, direction: Direction, margin: float) -> Verdict:
    """The whole interval beyond the margin: better or worse. All of it within: equivalent. Else undecided.

    Args:
        interval: Of candidate - baseline.
        direction: Which way is better.
        margin: Differences up to this do not matter; 0: every difference does.
    """
    low, high = interval.low, interval.high
    if -margin <= low and high <= margin:
        reason = "there is no difference" if low == high == 0 else "whatever the difference is, it is within the margin"
        return Verdict("equivalent", reason)
    if low > margin or high < -margin:
        name: VerdictName = "better" if (high < 0) == (direction == "lower") else "worse"
        return Verdict(name, "the whole interval lies beyond the margin")
    if low > 0 or high < 0:
        side = "better" if (high < 0) == (direction == "lower") else "worse"
        return Verdict("undecided", f"it is {side}, but perhaps by less than the margin")
    if low < -margin and high > margin:
        return Verdict("undecided", "the interval reaches beyond the margin on both sides: run more replicates")
    return Verdict("undecided", "the interval reaches from no difference to beyond the margin: run more replicates")
