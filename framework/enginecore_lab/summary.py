"""Summaries: a whole `Comparison` from measurements and verdicts, with its sentence and its warnings."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from enginecore_lab import text
from enginecore_lab.comparison import ArmComparison, ArmSummary, Comparison, MetricComparison
from enginecore_lab.experiment import DEFAULT_SECONDARY, Experiment
from enginecore_lab.judging import Judgements, too_few_pairs
from enginecore_lab.measurement import Measurement
from enginecore_lab.result import REPEAT, now, versions
from enginecore_lab.trial import TrialRecord

Measured = Sequence[Sequence[Measurement]]
"""Measurements by arm and replicate."""

_CLAIMS = {
    "better": "{candidate} is better than {baseline}",
    "worse": "{candidate} is worse than {baseline}",
    "equivalent": "{baseline} and {candidate} are equivalent",
    "undecided": "{candidate} against {baseline} is inconclusive",
    "refused": "{candidate} cannot be compared with {baseline}",
}


def summarize(experiment: Experiment, trial: TrialRecord, judgements: Judgements, *, command: str | None) -> Comparison:
    """Sum up a trial and its verdicts.

    Args:
        experiment: The experiment that was run.
        trial: Measurements of the experiment.
        judgements: The verdicts on them.
        command: The command that repeats it.
    """
    first = trial.arms[0][0]
    names = [arm.name for arm in experiment.arms]
    return Comparison(
        name=experiment.name,
        sentence=" ".join(sentence(names[0], each) for each in judgements.comparisons),
        loop=first.loop,
        virtual=first.virtual,
        replicates=experiment.replicates,
        seed=experiment.seed,
        arms=[_arm(name, of_arm) for name, of_arm in zip(names, trial.arms, strict=True)],
        comparisons=list(judgements.comparisons),
        noise_floor=judgements.noise_floors.get(experiment.primary.metric.name, 0.0),
        warnings=[
            *_warnings(experiment, trial.arms, trial.unsteady),
            *_few_pairs(experiment, judgements.comparisons),
        ],
        experiment=experiment.plain(),
        workload_hashes=[each.workload_hash for each in trial.arms[0]],
        versions=versions(trial.registry),
        command=command or REPEAT,
        created=now(),
    )


def sentence(baseline: str, comparison: ArmComparison) -> str:
    """The verdict on one arm: "In e2e_mean, a and b are equivalent: -0.3 % (95 % CI -0.8 to +0.2), within ..."."""
    metric = comparison.primary
    names = {"baseline": _quoted(baseline), "candidate": _quoted(comparison.arm)}
    claim = f"In {metric.metric}, {_CLAIMS[metric.verdict].format(**names)}"
    if metric.interval is None:
        return f"{claim}: {metric.reason}."
    return f"{claim}: {text.estimate(metric)}{_ending(metric)}."


def _quoted(name: str) -> str:
    """A name as it stands in a sentence: one word stands for itself, others are quoted."""
    return name if re.fullmatch(r"[\w.-]+", name) else repr(name)


def _ending(metric: MetricComparison) -> str:
    size = text.quantity(metric.margin, metric.unit) if metric.relative_interval is None else text.margin(metric)
    margin = f"the {size} margin"
    match metric.verdict:
        case "better" | "worse":
            return f", beyond {margin}" if metric.margin else ""
        case "equivalent":
            return f", within {margin}" if metric.margin else ""
    return f"; {metric.reason.replace('the margin', margin)}"


def _arm(name: str, measured: Sequence[Measurement]) -> ArmSummary:
    metrics = list(dict.fromkeys(metric for each in measured for metric in each.values))
    return ArmSummary(
        name=name,
        settings=measured[0].settings,
        info=measured[0].info,
        metrics={metric: [each.values[metric] for each in measured if metric in each.values] for metric in metrics},
        saturated=sum(each.saturated for each in measured),
    )


def _warnings(experiment: Experiment, measured: Measured, unsteady: Sequence[str]) -> Iterator[str]:
    for arm, of_arm in zip(experiment.arms, measured, strict=True):
        yield from _warnings_of(arm.name, of_arm)
    for name in unsteady:
        yield (
            f"two runs of {name!r} on one workload differ although time is simulated: something in it asks for the "
            "real time, or draws numbers without a seed. Verdicts allow for it as for the noise of a machine."
        )
    yield from _differences(experiment, measured)
    if experiment.clock == "real" and not experiment.window.skip_first:
        yield "The first requests of each engine count, which meet it idle: set window.skip_first."
    if experiment.reveal_lengths:
        yield "Policies could read how long outputs would be, which no real engine knows."
    if experiment.replicates == 1:
        yield "One workload: intervals are spreads between windows of it, and there are no p values."
    few = sorted(
        {name for of_arm in measured for each in of_arm for name in each.refused if name in _asked(experiment)}
    )
    for name in few:
        reason = next(each.refused[name] for of_arm in measured for each in of_arm if name in each.refused)
        yield f"{name} was left out: {reason}"


def _few_pairs(experiment: Experiment, comparisons: Sequence[ArmComparison]) -> Iterator[str]:
    if few := too_few_pairs(comparisons, experiment.level()):
        yield f"{few}."


def _asked(experiment: Experiment) -> tuple[str, ...]:
    """Secondary metrics that the experiment names. Default ones, which a result names too, may be missing silently."""
    names = tuple(metric.name for metric in experiment.secondary.metrics)
    return names if names != DEFAULT_SECONDARY else ()


def _warnings_of(name: str, measured: Sequence[Measurement]) -> Iterator[str]:
    failed, asked = sum(each.num_failed for each in measured), sum(each.num_requests for each in measured)
    if failed:
        yield (
            f"{failed:,} of {asked:,} requests of {name!r} failed or did not end. They count: as not good, and as "
            f"infinitely late. The first is {next(filter(None, (each.first_failure for each in measured)))}"
        )
    if wrong := sum(each.num_wrong_length for each in measured):
        yield (
            f"{wrong:,} of {asked:,} requests of {name!r} ended with another number of tokens than asked for: their "
            "latencies are those of other requests."
        )
    if saturated := sum(each.saturated for each in measured):
        yield f"the queue of {name!r} only grew in {saturated} of {len(measured)} replicates: it was overloaded there."


def _differences(experiment: Experiment, measured: Measured) -> Iterator[str]:
    """Arms that are the same, and arms that differ in what they compute with."""
    first = measured[0][0]
    for arm, of_arm in zip(experiment.arms[1:], measured[1:], strict=True):
        other, baseline = of_arm[0], experiment.arms[0].name
        if other.settings == first.settings:
            yield f"{arm.name!r} has the same settings as {baseline!r}: this compares an arm with itself."
        blocks: tuple[Any, Any] = (first.info["num_blocks"], other.info["num_blocks"])
        if blocks[0] != blocks[1]:
            yield (
                f"{baseline!r} has {blocks[0]:,} KV blocks and {arm.name!r} has {blocks[1]:,}: set num_kv_blocks if "
                "that is not what you ask about."
            )
