"""A trial: every arm of an experiment run on every replicate, and measured."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from enginecore.errors import ConfigurationError
from enginecore.registry import Registry
from enginecore_lab.arm_runs import ArmRunner, Progress, Runner
from enginecore_lab.experiment import FEWEST_REPLICATES, Experiment
from enginecore_lab.experiment_file import load_experiment
from enginecore_lab.measurement import Measurement, measure_run
from enginecore_lab.pool import run_tasks
from enginecore_lab.run import Run
from enginecore_lab.streams import Streams
from enginecore_lab.workloads.digest import workload_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """All that a trial measured.

    Attributes:
        arms: Measurements by arm and replicate; the baseline first.
        repeats: The baseline measured twice on each replicate (A/A), as two lists; empty where every run of an arm is
            the same.
        unsteady: Arms whose runs differ though time is simulated.
        runs: Each arm's run of the first replicate, by its name.
        registry: The plugins that the arms were built from.
    """

    arms: Sequence[Sequence[Measurement]]
    repeats: tuple[Sequence[Measurement], Sequence[Measurement]]
    unsteady: Sequence[str]
    runs: Mapping[str, Run]
    registry: Registry


def run_trial(
    experiment: Experiment, runner: Runner, *, jobs: int = 1, progress: Progress | None = None
) -> TrialRecord:
    """Run all arms on all replicates and measure each run.

    First each arm against itself: in virtual time two runs of one arm must be the same to the last token; where they
    are not, and on a real clock, the baseline runs twice on every replicate. Then all arms on every replicate: the same
    workload, each time a fresh engine; on a real clock in random order.

    Args:
        experiment: An experiment of `load_experiment`.
        runner: Runs one arm on one workload.
        jobs: Processes that share the replicates; on a real clock always one, since runs would disturb each other.
        progress: Called after every run.

    Raises:
        EngineCoreError: an arm cannot run, or the primary metric has no value; says why.
    """
    if experiment.replicates == 1:
        _check_without_chance(experiment)
    trial = _Trial(experiment, runner, progress or _ignore)
    trial.check_arms_against_themselves()
    repeats = trial.repeat_baseline()
    left = range(trial.num_replicates, experiment.replicates)
    if experiment.clock == "virtual" and jobs > 1 and len(left) > 1:
        trial.run_in_processes(left, runner, jobs)
    else:
        trial.run_here(left)
    return trial.record(repeats)


def measure_arm(runs: ArmRunner, experiment: Experiment, arm: int, replicate: int, rate: float = 1.0) -> Measurement:
    """Run one arm on one replicate and measure the run; see `ArmRunner.run`."""
    return _measured(runs, experiment, runs.run(arm, replicate, rate), replicate)


def _measured(runs: ArmRunner, experiment: Experiment, run: Run, replicate: int) -> Measurement:
    return measure_run(experiment, run, runs.time_alone(replicate) if experiment.needs_alone else None)


def _measure_replicate(plain: Mapping[str, Any], runner: Runner, replicate: int) -> list[Measurement]:
    """Measure all arms of an experiment, given as plain values, on one replicate, in a process of a pool."""
    experiment = load_experiment(plain)
    runs = ArmRunner(experiment, runner)
    return [measure_arm(runs, experiment, arm, replicate) for arm in range(len(experiment.arms))]


class _Trial:
    """The measurements of a trial while it runs."""

    def __init__(self, experiment: Experiment, runner: Runner, progress: Progress) -> None:
        self._experiment = experiment
        self._progress = progress
        self._runs = ArmRunner(experiment, runner)
        self._runs.workload(experiment.replicates - 1)  # now: a trace may be too short for so many
        self._is_virtual = experiment.clock == "virtual"
        self._total = (experiment.replicates + self._is_virtual) * len(experiment.arms)
        self._done = 0
        self._arms: list[list[Measurement]] = [[] for _ in experiment.arms]
        self._shown: dict[str, Run] = {}
        self._unsteady: list[str] = []

    @property
    def num_replicates(self) -> int:
        """Replicates that are done in all arms."""
        return len(self._arms[0])

    def record(self, repeats: tuple[Sequence[Measurement], Sequence[Measurement]]) -> TrialRecord:
        """All that was measured."""
        return TrialRecord(
            arms=self._arms,
            repeats=repeats,
            unsteady=self._unsteady,
            runs=self._shown,
            registry=self._runs.registry,
        )

    def check_arms_against_themselves(self) -> None:
        """Run each arm twice on the first replicate, where time is simulated."""
        for number, arm in enumerate(self._experiment.arms if self._is_virtual else ()):
            first, again = self._measure_shown(number), self._measure(number, 0)
            self._check_primary(first)
            self._arms[number].append(first)
            if first.fingerprint != again.fingerprint:
                self._unsteady.append(arm.name)
        if self._unsteady and self._experiment.replicates == 1:
            raise ConfigurationError(
                f"replicates = 1 is for runs without chance, and two runs of arm {self._unsteady[0]!r} on this "
                "workload differ: something in it asks for the real time, or draws numbers without a seed"
            )

    def repeat_baseline(self) -> tuple[list[Measurement], list[Measurement]]:
        """Measure the baseline twice on every replicate; not at all where every run of an arm is the same."""
        halves: tuple[list[Measurement], list[Measurement]] = [], []
        if self._is_virtual and not self._unsteady:
            return halves
        self._total += 2 * self._experiment.replicates
        for replicate in range(self._experiment.replicates):
            for half in halves:
                half.append(self._measure(0, replicate))
                self._check_primary(half[0])
        return halves

    def run_here(self, replicates: Iterable[int]) -> None:
        """Run every arm on these replicates in this process."""
        for replicate in replicates:
            found = {
                arm: self._measure(arm, replicate) if replicate else self._measure_shown(arm)
                for arm in self._order(replicate)
            }
            self._add(found[arm] for arm in range(len(self._arms)))

    def run_in_processes(self, replicates: Iterable[int], runner: Runner, jobs: int) -> None:
        """Run every arm on these replicates, one replicate per task of a pool."""
        plain = self._experiment.plain()
        tasks = [(plain, runner, replicate) for replicate in replicates]
        for found in run_tasks(
            _measure_replicate, tasks, jobs=jobs, on_done=lambda: self._count(len(self._experiment.arms))
        ):
            self._add(found)

    def _order(self, replicate: int) -> list[int]:
        """The arms in random order, so that no arm always runs on the warmer machine."""
        order = Streams(self._experiment.seed).generator("order", replicate).permutation(len(self._arms))
        return [int(arm) for arm in order]

    def _measure(self, arm: int, replicate: int) -> Measurement:
        measurement = measure_arm(self._runs, self._experiment, arm, replicate)
        self._count(1)
        return measurement

    def _measure_shown(self, arm: int) -> Measurement:
        """Measure an arm on the first replicate, and keep the whole run for pictures."""
        run = self._runs.run(arm, 0)
        self._count(1)
        self._shown[self._experiment.arms[arm].name] = run
        return _measured(self._runs, self._experiment, run, 0)

    def _add(self, measurements: Iterable[Measurement]) -> None:
        for arm, measurement in zip(self._arms, measurements, strict=True):
            arm.append(measurement)

    def _count(self, num_runs: int) -> None:
        self._done += num_runs
        self._progress(self._done, self._total)

    def _check_primary(self, measurement: Measurement) -> None:
        """Refuse a primary metric without a value before hours are spent on it."""
        metric = self._experiment.primary.metric.name
        if metric in measurement.refused:
            raise ConfigurationError(
                f"the primary metric {metric} has no value in the first replicate: {measurement.refused[metric]}"
            )


def _check_without_chance(experiment: Experiment) -> None:
    first, other = (workload_hash(experiment.workload.make(seed, 0)) for seed in (experiment.seed, experiment.seed + 1))
    if first != other:
        raise ConfigurationError(
            "replicates = 1 is for one workload without chance, and this one is drawn: with seed "
            f"{experiment.seed + 1} it would be another; take at least {FEWEST_REPLICATES} replicates"
        )


def _ignore(done: int, total: int) -> None:
    """Progress that is not shown."""
