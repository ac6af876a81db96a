"""Runs the arms of an experiment on its replicates: each time a fresh engine, for each replicate one workload."""

from collections.abc import Callable
from statistics import fmean
from typing import Protocol

from enginecore.errors import ConfigurationError, EngineCoreError
from enginecore.settings import Loaded
from enginecore_lab.arms import for_replicate, load_arms
from enginecore_lab.experiment import Experiment
from enginecore_lab.measurement import Measurement, measure
from enginecore_lab.metrics import Alone
from enginecore_lab.replay import time_alone
from enginecore_lab.run import Run
from enginecore_lab.workload import Workload
from enginecore_lab.workloads.transform import mean_rate, scale_rate

Progress = Callable[[int, int], None]
"""Is told how many runs are done, and of how many."""


class Runner(Protocol):
    """Runs a workload on a fresh engine, as `enginecore_lab.replay` does."""

    def __call__(self, workload: Workload, settings: Loaded, /, *, virtual: bool, reveal_lengths: bool) -> Run:
        """To the end of its last request."""
        ...


class ArmRunner:
    """One process's place for runs."""

    def __init__(self, experiment: Experiment, runner: Runner) -> None:
        self._experiment = experiment
        self._runner = runner
        self._arms = load_arms(experiment)
        self._workload: tuple[int, Workload] | None = None
        self._alone: tuple[int, Alone] | None = None

    def workload(self, replicate: int) -> Workload:
        """The same for all arms. The last one is kept, since arms take turns on it."""
        if self._workload is None or self._workload[0] != replicate:
            self._workload = replicate, self._experiment.workload.make(self._experiment.seed, replicate)
        return self._workload[1]

    def mean_rate(self) -> float:
        """Requests per second of the workload, averaged over replicates.

        Raises:
            ConfigurationError: it has no rate.
        """
        workloads = [self.workload(replicate) for replicate in range(self._experiment.replicates)]
        if workloads[0].loop == "closed":
            raise ConfigurationError(
                f"workload {workloads[0].name!r} is a closed loop: its clients wait for answers, so it has no rate"
            )
        return fmean(mean_rate(workload) for workload in workloads)

    def run(self, arm: int, replicate: int, rate: float = 1.0) -> Run:
        """One arm on one replicate, whose requests come `rate` times as fast.

        Raises:
            EngineCoreError: it cannot run; names the arm.
        """
        workload = scale_rate(self.workload(replicate), rate)
        try:
            return self._runner(
                workload,
                for_replicate(self._arms[arm], self._experiment, replicate),
                virtual=self._experiment.clock == "virtual",
                reveal_lengths=self._experiment.reveal_lengths,
            )
        except EngineCoreError as error:
            kind = ConfigurationError if isinstance(error, ConfigurationError) else EngineCoreError
            raise kind(f"arm {self._experiment.arms[arm].name!r}, replicate {replicate}: {error}") from error

    def kept(self, run: Run, replicate: int) -> Measurement:
        """What is kept of a run of a replicate."""
        experiment = self._experiment
        metrics = experiment.metrics()
        return measure(
            run,
            metrics,
            experiment.slo.terms(),
            experiment.window.window(),
            alone=self._time_alone(replicate) if any(each.name.startswith("slowdown") for each in metrics) else None,
            in_windows=experiment.replicates == 1,
        )

    def measure(self, arm: int, replicate: int, rate: float = 1.0) -> Measurement:
        """What is kept of such a run."""
        return self.kept(self.run(arm, replicate, rate), replicate)

    def _time_alone(self, replicate: int) -> Alone:
        """How long requests take with an engine to themselves: the baseline's, so that it is the same for all arms."""
        if self._alone is None or self._alone[0] != replicate:
            baseline = for_replicate(self._arms[0], self._experiment, replicate)
            virtual = self._experiment.clock == "virtual"
            self._alone = replicate, time_alone(self.workload(replicate), baseline, virtual=virtual)
        return self._alone[1]
