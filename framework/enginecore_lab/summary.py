"""From verdicts to a whole `Comparison`: the sentence, and what a reader must know before believing it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from enginecore_lab.arms import load_arms
from enginecore_lab.comparison import ArmComparison, ArmSummary, Comparison, MetricComparison
from enginecore_lab.experiment import DEFAULT_SECONDARY, Experiment
from enginecore_lab.judging import too_few_pairs
from enginecore_lab.measurement import Measurement
from enginecore_lab.report import text
from enginecore_lab.result import REPEAT, now, versions

Measured = Sequence[Sequence[Measurement]]
"""By arm and replicate."""

_WORDS = {
    "better": "is better than",
    "worse": "is worse than",
    "equivalent": "is as good as",
    "undecided": "may be better or worse than",
    "refused": "cannot be compared with",
}


def summarize(
    experiment: Experiment,
    measured: Measured,
    comparisons: Sequence[ArmComparison],
    *,
    floors: Mapping[str, float],
    unsteady: Sequence[str],
    command: str | None,
) -> Comparison:
    """The whole comparison.

    Args:
        experiment: That was run.
        measured: All of it.
        comparisons: The verdicts.
        floors: Half widths of A/A intervals, by metric; empty: every run of an arm is the same.
        unsteady: Arms whose runs differ though time is simulated.
        command: What repeats it.
    """
    first = measured[0][0]
    names = [arm.name for arm in experiment.arms]
    return Comparison(
        name=experiment.name,
        sentence=" ".join(sentence(names[0], each, experiment.replicates) for each in comparisons),
        loop=first.loop,
        virtual=first.virtual,
        replicates=experiment.replicates,
        seed=experiment.seed,
        arms=[_arm(name, of_arm) for name, of_arm in zip(names, measured, strict=True)],
        comparisons=list(comparisons),
        noise_floor=floors.get(experiment.primary.metric, 0.0),
        warnings=[*_warnings(experiment, measured, unsteady), *_few_pairs(experiment, comparisons)],
        experiment=experiment.plain(),
        workload_hashes=[each.workload_hash for each in measured[0]],
        versions=versions(load_arms(experiment)[0].registry),
        command=command or REPEAT,
        created=now(),
    )


def sentence(baseline: str, comparison: ArmComparison, replicates: int) -> str:
    """The verdict on one arm."""
    metric = comparison.primary
    claim = f"In {metric.metric}, {comparison.arm!r} {_WORDS[metric.verdict]} {baseline!r}"
    if metric.interval is None:
        return f"{claim}: {metric.reason}."
    base, other = (text.quantity(text.mean(values), metric.unit) for values in (metric.baseline, metric.candidate))
    interval = f"{text.level(metric.interval)} interval {text.interval(metric)}"
    figures = f"{text.difference(metric)} ({base} to {other}; {interval}; {_pairs(replicates)})"
    return f"{claim}: {figures}." if _is_plain(metric) else f"{claim}: {figures}; {metric.reason}."


def _is_plain(metric: MetricComparison) -> bool:
    return metric.verdict in ("better", "worse")


def _pairs(replicates: int) -> str:
    return "one workload" if replicates == 1 else f"{replicates} pairs"


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
    """Secondary metrics that somebody asked for by name; of the default ones, which a result names too, nobody misses
    one.
    """
    return experiment.secondary.metrics if experiment.secondary.metrics != DEFAULT_SECONDARY else ()


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
