"""`compare`: an experiment from its first run to its verdict."""

from collections.abc import Iterable

from enginecore.errors import ConfigurationError
from enginecore_lab.arm_runs import ArmRunner, Progress, Runner
from enginecore_lab.experiment import FEWEST_REPLICATES, Experiment
from enginecore_lab.judging import Margin, Rules, judge_arms, noise_floors
from enginecore_lab.measurement import Measurement
from enginecore_lab.pool import run_tasks
from enginecore_lab.replay import replay
from enginecore_lab.result import Outcome
from enginecore_lab.run import Run
from enginecore_lab.summary import summarize
from enginecore_lab.workloads.digest import workload_hash
from enginecore_lab.workloads.streams import Streams


def compare(
    experiment: Experiment,
    *,
    progress: Progress | None = None,
    runner: Runner = replay,
    jobs: int = 1,
    command: str | None = None,
) -> Outcome:
    """Run an experiment and judge it.

    First each arm against itself: in virtual time two runs of one arm must be the same to the last token; where they
    are not, and on a real clock, the baseline runs twice on every replicate, and no verdict is finer than that. Then
    all arms on every replicate: the same workload, each time a fresh engine; on a real clock in random order.

    Args:
        experiment: What `load_experiment` read.
        progress: Called after every run.
        runner: Runs one arm on one workload.
        jobs: Processes that share the replicates; on a real clock always one, for runs would disturb each other.
        command: What repeats it, for the record.

    Raises:
        EngineCoreError: an arm cannot run; or the primary metric has no value here. Says why.
    """
    if experiment.replicates == 1:
        _check_without_chance(experiment)
    trial = _Trial(experiment, runner, progress or _ignore, jobs)
    trial.check_arms_against_themselves()
    trial.run_all()
    comparisons = judge_arms([arm.name for arm in experiment.arms], trial.arms, trial.rules())
    comparison = summarize(
        experiment, trial.arms, comparisons, floors=trial.floors, unsteady=trial.unsteady, command=command
    )
    return Outcome(comparison, trial.runs)


class _Trial:
    """The runs of one comparison.

    Attributes:
        arms: Measurements by arm and replicate.
        runs: Each arm's run of the first replicate, by its name.
        floors: Half widths of A/A intervals by metric; empty: every run of an arm is the same.
        unsteady: Arms whose runs differ though time is simulated.
    """

    def __init__(self, experiment: Experiment, runner: Runner, progress: Progress, jobs: int) -> None:
        self._experiment = experiment
        self._runner = runner
        self._progress = progress
        self._jobs = jobs if experiment.clock == "virtual" else 1
        self._bench = ArmRunner(experiment, runner)
        self._bench.workload(experiment.replicates - 1)  # now: a trace may be too short for so many
        self._is_virtual = experiment.clock == "virtual"
        self._total = (experiment.replicates + self._is_virtual) * len(experiment.arms)
        self._done = 0
        self.arms: list[list[Measurement]] = [[] for _ in experiment.arms]
        self.runs: dict[str, Run] = {}
        self.floors: dict[str, float] = {}
        self.unsteady: list[str] = []

    def check_arms_against_themselves(self) -> None:
        """A/A, before anything else."""
        for number, arm in enumerate(self._experiment.arms if self._is_virtual else ()):
            first, again = self._measure_shown(number), self._measure(number, 0)
            self._check_primary(first)
            self.arms[number].append(first)
            if first.fingerprint != again.fingerprint:
                self.unsteady.append(arm.name)
        if self.unsteady and self._experiment.replicates == 1:
            raise ConfigurationError(
                f"replicates = 1 is for runs without chance, and two runs of arm {self.unsteady[0]!r} on this workload "
                "differ: something in it asks for the real time, or draws numbers without a seed"
            )
        if self.unsteady or not self._is_virtual:
            self._find_noise_floors()

    def run_all(self) -> None:
        """Every arm on every replicate that is not done yet."""
        left = range(len(self.arms[0]), self._experiment.replicates)
        if self._jobs > 1 and len(left) > 1:
            self._run_in_processes(left)
            return
        for replicate in left:
            found = {
                arm: self._measure_shown(arm) if not replicate else self._measure(arm, replicate)
                for arm in self._order(replicate)
            }
            self._add(found[arm] for arm in range(len(self.arms)))

    def rules(self) -> Rules:
        """By what it is judged."""
        experiment = self._experiment
        primary, *secondary = experiment.metrics()
        return Rules(
            primary=primary,
            primary_margin=experiment.primary.margin_in_force(),
            secondary=secondary,
            secondary_margin=Margin(experiment.secondary.margin),
            level=experiment.level(),
            seed=experiment.seed,
            across=experiment.across,
            noise=self.floors,
        )

    def _order(self, replicate: int) -> list[int]:
        """In which arms take turns: by chance, so that no arm always runs on the warmer machine."""
        order = Streams(self._experiment.seed).generator("order", replicate).permutation(len(self.arms))
        return [int(arm) for arm in order]

    def _find_noise_floors(self) -> None:
        replicates = range(self._experiment.replicates)
        self._total += 2 * len(replicates)
        first: list[Measurement] = []
        second: list[Measurement] = []
        for replicate in replicates:
            for half in (first, second):
                half.append(self._measure(0, replicate))
                self._check_primary(half[0])
        self.floors = noise_floors(first, second, self._experiment.metrics())

    def _measure(self, arm: int, replicate: int) -> Measurement:
        found = self._bench.measure(arm, replicate)
        self._count(1)
        return found

    def _measure_shown(self, arm: int) -> Measurement:
        """On the first replicate; the whole run is kept, for pictures."""
        run = self._bench.run(arm, 0)
        self._count(1)
        self.runs[self._experiment.arms[arm].name] = run
        return self._bench.kept(run, 0)

    def _run_in_processes(self, replicates: Iterable[int]) -> None:
        tasks = [(self._experiment, self._runner, replicate) for replicate in replicates]
        for found in run_tasks(_measure_all, tasks, jobs=self._jobs, on_done=lambda: self._count(len(self.arms))):
            self._add(found)

    def _add(self, measurements: Iterable[Measurement]) -> None:
        for arm, measurement in zip(self.arms, measurements, strict=True):
            arm.append(measurement)

    def _count(self, num_runs: int) -> None:
        self._done += num_runs
        self._progress(self._done, self._total)

    def _check_primary(self, measurement: Measurement) -> None:
        """Before hours are spent on an answer that cannot come."""
        metric = self._experiment.primary.metric
        if metric in measurement.refused:
            raise ConfigurationError(
                f"the primary metric {metric} has no value in the first replicate: {measurement.refused[metric]}"
            )


def _measure_all(experiment: Experiment, runner: Runner, replicate: int) -> list[Measurement]:
    """All arms on one replicate, in a process of a pool."""
    bench = ArmRunner(experiment, runner)
    return [bench.measure(arm, replicate) for arm in range(len(experiment.arms))]


def _check_without_chance(experiment: Experiment) -> None:
    first, other = (workload_hash(experiment.workload.make(seed, 0)) for seed in (experiment.seed, experiment.seed + 1))
    if first != other:
        raise ConfigurationError(
            "replicates = 1 is for one workload without chance, and this one is drawn: with seed "
            f"{experiment.seed + 1} it would be another; take at least {FEWEST_REPLICATES} replicates"
        )


def _ignore(done: int, total: int) -> None:
    """Nobody wants to know."""
