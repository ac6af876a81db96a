"""Arms x rates: how each configuration changes as requests come faster."""

import itertools
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import msgspec

from enginecore.errors import ConfigurationError
from enginecore_lab.arm_runs import ArmRunner, Progress, Runner
from enginecore_lab.experiment import Experiment
from enginecore_lab.experiment_file import load_experiment
from enginecore_lab.pool import PoolKind, run_tasks
from enginecore_lab.replay import replay
from enginecore_lab.trial import measure_arm


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One arm at one rate.

    Attributes:
        arm: Name of the arm.
        factor: Times the workload's own rate.
        rate: Requests offered per second, averaged over replicates.
        metrics: Values per replicate, by metric; of those replicates that have one.
        saturated: In how many replicates the queue only grew.
    """

    arm: str
    factor: float
    rate: float
    metrics: dict[str, list[float]]
    saturated: int


def run_sweep(
    experiment: Experiment,
    factors: Sequence[float],
    *,
    jobs: int = 1,
    pool: PoolKind = "processes",
    progress: Progress | None = None,
    runner: Runner = replay,
) -> list[Cell]:
    """Every arm at every rate, by arm and then by rate, with the same requests everywhere.

    Args:
        experiment: The experiment whose workload is stretched in time; any number of replicates
            will do, for nothing is judged.
        factors: Times the workload's own rate.
        jobs: Runs at the same time; on a real clock one, for they would disturb each other.
        pool: Where they run.
        progress: Called after each arm at each rate.
        runner: Runs one arm on one workload.

    Raises:
        EngineCoreError: a factor is not above 0, or an arm cannot run; says why.
    """
    if wrong := [factor for factor in factors if not 0 < factor < inf]:
        raise ConfigurationError(f"rates are finite multiples of the workload's own, above 0; got {wrong[0]}")
    if experiment.clock == "real" and (jobs > 1 or pool != "processes"):
        raise ConfigurationError("on a real clock runs would disturb each other: take one job, in this process")
    plain = experiment.plain()
    tasks = [(plain, runner, arm, factor) for arm in range(len(experiment.arms)) for factor in factors]
    done = itertools.count(1)
    return run_tasks(
        _run_cell,
        tasks,
        jobs=jobs,
        kind=pool,
        on_done=lambda: None if progress is None else progress(next(done), len(tasks)),
    )


def _run_cell(plain: Mapping[str, Any], runner: Runner, arm: int, factor: float) -> Cell:
    experiment = load_experiment(plain)
    runs = ArmRunner(experiment, runner)
    measured = [measure_arm(runs, experiment, arm, replicate, factor) for replicate in range(experiment.replicates)]
    metrics = dict.fromkeys(metric for each in measured for metric in each.values)
    return Cell(
        arm=experiment.arms[arm].name,
        factor=factor,
        rate=factor * runs.mean_rate(),
        metrics={metric: [each.values[metric] for each in measured if metric in each.values] for metric in metrics},
        saturated=sum(each.saturated for each in measured),
    )
