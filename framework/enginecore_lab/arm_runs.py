"""Runs of an experiment's arms: one arm on one replicate of the workload, each on a fresh engine."""

from collections.abc import Callable
from statistics import fmean
from typing import Protocol

from enginecore.errors import ConfigurationError, EngineCoreError
from enginecore.registry import Registry
from enginecore.settings import Loaded
from enginecore_lab.arms import for_replicate, load_arms
from enginecore_lab.experiment import Experiment
from enginecore_lab.metrics import Alone
from enginecore_lab.replay import time_alone
from enginecore_lab.run import Run
from enginecore_lab.workload import Workload
from enginecore_lab.workloads.transform import mean_rate, scale_rate

Progress = Callable[[int, int], None]
"""Called with the number of runs that are done and the number of all runs."""


class Runner(Protocol):
    """Runs a workload on a fresh engine, as `enginecore_lab.replay` does."""

    def __call__(self, workload: Workload, settings: Loaded, /, *, virtual: bool, reveal_lengths: bool) -> Run:
        """Run the workload to the end of its last request."""
        ...


class ArmRunner:
    """Runs the arms of one experiment in this process."""

    def __init__(self, experiment: Experiment, runner: Runner) -> None:
        self._experiment = experiment
        self._runner = runner
        self._arms = load_arms(experiment)
        self._workload: tuple[int, Workload] | None = None
        self._alone: tuple[int, Alone] | None = None

    @property
    def registry(self) -> Registry:
        """The plugins that the arms are built from."""
        return self._arms[0].registry

    def workload(self, replicate: int) -> Workload:
        """The workload of a replicate, the same for all arms. The last one is kept, since arms take turns on it."""
        if self._workload is None or self._workload[0] != replicate:
            self._workload = replicate, self._experiment.workload.make(self._experiment.seed, replicate)
        return self._workload[1]

    def mean_rate(self) -> float:
        """Requests per second of the workload, averaged over replicates.

        Raises:
            ConfigurationError: the workload has no rate.
        """
        workloads = [self.workload(replicate) for replicate in range(self._experiment.replicates)]
        if workloads[0].loop == "closed":
            raise ConfigurationError(
                f"workload {workloads[0].name!r} is a closed loop: its clients wait for answers, so it has no rate"
            )
        return fmean(mean_rate(workload) for workload in workloads)

    def run(self, arm: int, replicate: int, rate: float = 1.0) -> Run:
        """Run one arm on one replicate, whose requests arrive `rate` times as fast.

        Raises:
            EngineCoreError: the run failed; names arm and replicate.
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

    def time_alone(self, replicate: int) -> Alone:
        """Seconds that each request takes with the baseline's engine to itself: the same figures for all arms."""
        if self._alone is None or self._alone[0] != replicate:
            baseline = for_replicate(self._arms[0], self._experiment, replicate)
            virtual = self._experiment.clock == "virtual"
            self._alone = replicate, time_alone(self.workload(replicate), baseline, virtual=virtual)
        return self._alone[1]
