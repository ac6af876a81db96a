"""`compare`: an experiment from its first run to its result."""

from enginecore_lab.arm_runs import Progress, Runner
from enginecore_lab.experiment import Experiment
from enginecore_lab.judging import judge_trial
from enginecore_lab.replay import replay
from enginecore_lab.result import Outcome
from enginecore_lab.summary import summarize
from enginecore_lab.trial import run_trial


def compare(
    experiment: Experiment,
    *,
    progress: Progress | None = None,
    runner: Runner = replay,
    jobs: int = 1,
    command: str | None = None,
) -> Outcome:
    """Run an experiment, measure its runs, judge the measurements and sum them up.

    Args:
        experiment: An experiment of `load_experiment`.
        progress: Called after every run.
        runner: Runs one arm on one workload.
        jobs: Processes that share the replicates; on a real clock always one, since runs would disturb each other.
        command: The command that repeats it, for the record.

    Raises:
        EngineCoreError: an arm cannot run, or the primary metric has no value; says why.
    """
    trial = run_trial(experiment, runner, jobs=jobs, progress=progress)
    judgements = judge_trial(experiment, trial)
    return Outcome(summarize(experiment, trial, judgements, command=command), trial.runs)
