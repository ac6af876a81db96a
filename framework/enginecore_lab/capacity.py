"""The capacity of each arm: the highest rate at which enough requests are still served in time."""

import math
from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np

from enginecore.errors import ConfigurationError
from enginecore_lab.arm_runs import ArmRunner, Progress, Runner
from enginecore_lab.experiment import Experiment
from enginecore_lab.metrics.totals import slo_attainment
from enginecore_lab.replay import replay

WIDEST = 2.0**10
"""How many times slower and faster than the workload is looked."""

FINEST = 1e-9
"""The smallest tolerance. Rates are floating point numbers: below 2e-16 there is nothing between two of them."""

PROBES = (0.7, 0.85, 1.15, 1.3)
"""Shares of the capacity at which it is checked that slower is fine and faster is not."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One rate that was tried.

    Attributes:
        factor: Times the workload's own rate.
        rate: Requests per second.
        attainment: Share of requests that were good, averaged over replicates.
    """

    factor: float
    rate: float
    attainment: float


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """Capacity of one arm.

    Attributes:
        arm: Name of the arm.
        rate: Requests per second: at this rate enough were good, at a slightly higher one not.
        attainment: At this rate.
        points: All that was tried, by rate.
        is_monotone: Whether enough were good at every lower rate that was tried, and at no higher one. If not, there is
            no such thing as the capacity.
    """

    arm: str
    rate: float
    attainment: float
    points: list[Point]
    is_monotone: bool


def find_capacity(
    experiment: Experiment,
    *,
    target: float = 0.9,
    tolerance: float = 0.02,
    progress: Progress | None = None,
    runner: Runner = replay,
) -> list[Capacity]:
    """Find the capacity of each arm by bisection, with the same requests at every rate and in every
    arm.

    Args:
        experiment: `slo`, or the workload, says what good is. The workload's times are stretched.
        target: Share of requests that must be good.
        tolerance: How close, relatively, the two rates must be between which the capacity lies.
        progress: Called after each rate with how many rates are done, and about how many there will be.
        runner: Runs one arm on one workload.

    Raises:
        EngineCoreError: nothing says what good is, the workload has no rate of its own, or all rates are fine, or none.
    """
    if not 0 < target <= 1:
        raise ConfigurationError(f"the target must be a share above 0 and at most 1, got {target}")
    if not FINEST <= tolerance <= 1:
        raise ConfigurationError(f"the tolerance must be from {FINEST:g} to 1, got {tolerance}")
    arm_runs = ArmRunner(experiment, runner)
    rate = arm_runs.mean_rate()
    found: list[Capacity] = []
    done = 0

    def on_point(left: int) -> None:
        nonlocal done
        done += 1
        others = len(experiment.arms) - len(found) - 1
        if progress is not None:
            progress(done, done + left + others * done // (len(found) + 1))

    for number, arm in enumerate(experiment.arms):
        factor, points = search(partial(_attainment, experiment, arm_runs, number), target, tolerance, on_point)
        found.append(_capacity(arm.name, factor, points, rate, target))
    return found


def search(
    attainment: Callable[[float], float], target: float, tolerance: float, on_point: Callable[[int], None]
) -> tuple[float, dict[float, float]]:
    """The factor at which the workload's rate is the capacity, and the attainment at all factors that were tried.

    Args:
        attainment: At a factor.
        target: Target that a good rate reaches.
        tolerance: As for `find_capacity`.
        on_point: Called after each try with about how many are left.

    Raises:
        ConfigurationError: none is good enough, or all are.
    """
    points: dict[float, float] = {}

    def is_good(factor: float, left: int) -> bool:
        points[factor] = attainment(factor)
        on_point(left)
        return points[factor] >= target

    bisections = math.ceil(math.log2(math.log(2) / math.log1p(tolerance)))
    low, high = _bracket(lambda factor: is_good(factor, bisections + len(PROBES)), target)
    while high / low > 1 + tolerance:
        bisections -= 1
        middle = math.sqrt(low * high)
        if is_good(middle, max(bisections, 0) + len(PROBES)):
            low = middle
        else:
            high = middle
    for number, probe in enumerate(PROBES):
        is_good(low * probe, len(PROBES) - number - 1)
    return low, points


def _bracket(is_good: Callable[[float], bool], target: float) -> tuple[float, float]:
    """A factor that is good, and twice as much, which is not."""
    factor = 1.0
    grows = is_good(factor)
    while 1 / WIDEST < factor < WIDEST:
        factor *= 2 if grows else 0.5
        if is_good(factor) != grows:
            return (factor / 2, factor) if grows else (factor, factor * 2)
    if grows:
        raise ConfigurationError(
            f"at {factor:g} times the workload's rate still {target:.0%} of all requests are good: the terms are too "
            "loose, or the requests too few to fill the engine"
        )
    raise ConfigurationError(
        f"at {factor:g} times the workload's rate fewer than {target:.0%} of all requests are good: no rate meets "
        "these terms"
    )


def _attainment(experiment: Experiment, arm_runs: ArmRunner, arm: int, factor: float) -> float:
    """Averaged over replicates."""
    slo, window = experiment.slo.terms(), experiment.window.window()
    runs = (arm_runs.run(arm, replicate, factor) for replicate in range(experiment.replicates))
    return float(np.mean([slo_attainment(window.of(run), slo) for run in runs]))


def _capacity(arm: str, factor: float, points: dict[float, float], rate: float, target: float) -> Capacity:
    tried = sorted(points.items())
    good = [attainment >= target for _, attainment in tried]
    return Capacity(
        arm=arm,
        rate=factor * rate,
        attainment=points[factor],
        points=[Point(factor=each, rate=each * rate, attainment=attainment) for each, attainment in tried],
        is_monotone=good == sorted(good, reverse=True),
    )
