"""Judgements: a verdict on each metric of each arm, from the measurements of a trial."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

import msgspec
import numpy as np

from enginecore_lab.comparison import ArmComparison, Interval, MetricComparison
from enginecore_lab.experiment import Experiment
from enginecore_lab.interfaces import Direction
from enginecore_lab.measurement import Measurement
from enginecore_lab.statistics import (
    LEVEL,
    Across,
    Margin,
    VerdictRefused,
    difference,
    fewest_pairs,
    finite_pairs,
    half_width,
    has_ratio,
    holm,
    judge,
    relative_change,
    sign_flip_p,
)
from enginecore_lab.trial import TrialRecord

MOST_SATURATED = 0.1
"""Share of replicates whose queue may only grow before latencies say more of a run's length than of the arm."""


class MetricFacts(Protocol):
    """The facts of a metric that its differences are judged by: its name, and members of `Metric`."""

    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def direction(self) -> Direction: ...
    @property
    def follows_queue(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of verdicts.

    Attributes:
        primary: The metric that decides.
        primary_margin: Margin of the primary metric.
        secondary_margin: Margin of all other metrics.
        level: Level of all intervals.
        seed: Seed of resampling.
        across: Summary of the replicates.
        noise: Half width of each metric's A/A interval: what differs by less is not better or worse.
    """

    primary: MetricFacts
    primary_margin: Margin
    secondary: Sequence[MetricFacts] = ()
    secondary_margin: Margin = field(default_factory=lambda: Margin(0.02))
    level: float = LEVEL
    seed: int = 0
    across: Across = "mean"
    noise: Mapping[str, float] = field(default_factory=dict)


Arm = Sequence[Measurement]
"""One measurement per replicate."""


@dataclass(frozen=True, slots=True)
class Judgements:
    """The verdicts of a trial.

    Attributes:
        comparisons: Each arm against the baseline.
        noise_floors: Half width of each metric's A/A interval; empty where every run of an arm is the same.
    """

    comparisons: Sequence[ArmComparison]
    noise_floors: Mapping[str, float]


def judge_trial(experiment: Experiment, trial: TrialRecord) -> Judgements:
    """Judge every arm of a trial against the baseline."""
    primary, *secondary = experiment.metrics()
    floors = noise_floors(*trial.repeats, [primary, *secondary])
    rules = Rules(
        primary=primary,
        primary_margin=experiment.primary.margin_in_force(),
        secondary=secondary,
        secondary_margin=Margin(experiment.secondary.margin),
        level=experiment.level(),
        seed=experiment.seed,
        across=experiment.across,
        noise=floors,
    )
    return Judgements(judge_arms([arm.name for arm in experiment.arms], trial.arms, rules), floors)


def judge_arms(names: Sequence[str], arms: Sequence[Arm], rules: Rules) -> list[ArmComparison]:
    """Every arm against the first one. The p values of all secondary metrics are one family, adjusted after Holm."""
    found = [_judge_arm(name, arms[0], arm, rules) for name, arm in zip(names[1:], arms[1:], strict=True)]
    adjusted = iter(holm([p for each in found for p in _p_values(each)]))
    why = too_few_pairs(found, rules.level) or "so many secondary metrics were looked at that this may be chance"
    return [_with_adjusted(each, [next(adjusted) for _ in _p_values(each)], rules.level, why) for each in found]


def too_few_pairs(comparisons: Sequence[ArmComparison], level: float) -> str:
    """That no secondary difference can be sure, whatever its size, and what it would take; empty if one can."""
    num_pairs = [len(found.baseline) for each in comparisons for found in each.secondary if _is_tested(found)]
    if not num_pairs or max(num_pairs) >= (needed := fewest_pairs(len(num_pairs), level)):
        return ""
    return (
        f"{max(num_pairs)} pairs are too few to be sure of any of {len(num_pairs)} secondary differences: it takes "
        f"{needed} pairs, or fewer secondary.metrics"
    )


def noise_floors(first: Arm, second: Arm, metrics: Sequence[MetricFacts], level: float = LEVEL) -> dict[str, float]:
    """Half width of the interval of each metric's difference between two runs of one arm; infinite if a value is."""
    floors: dict[str, float] = {}
    for metric in metrics:
        pairs = _pairs(metric.name, first, second)
        if len(pairs) > 1:
            values = np.array(pairs)
            finite = np.isfinite(values).all()
            floors[metric.name] = half_width(values[:, 1] - values[:, 0], level) if finite else inf
    return floors


def _judge_arm(name: str, baseline: Arm, candidate: Arm, rules: Rules) -> ArmComparison:
    primary = judge_metric(rules.primary, baseline, candidate, rules.primary_margin, rules)
    secondary = [
        judge_metric(metric, baseline, candidate, rules.secondary_margin, rules)
        for metric in rules.secondary
        if _pairs(metric.name, baseline, candidate)
    ]
    return ArmComparison(arm=name, primary=primary, secondary=secondary)


def judge_metric(metric: MetricFacts, baseline: Arm, candidate: Arm, margin: Margin, rules: Rules) -> MetricComparison:
    """One metric over all replicates, with a verdict or the reason why there can be none."""
    pairs = _pairs(metric.name, baseline, candidate)
    before, after = [a for a, _ in pairs], [b for _, b in pairs]
    base = float(np.mean(before)) if before else 0.0
    change = float(np.mean(after)) - base if after else 0.0
    found = MetricComparison(
        metric=metric.name,
        unit=metric.unit,
        direction=metric.direction,
        baseline=before,
        candidate=after,
        difference=change,
        relative=change / abs(base) if base else 0.0,
        interval=None,
        p_value=None,
        margin=margin.of(base),
        verdict="refused",
        reason="",
    )
    try:
        _refuse_what_has_no_value(metric.name, baseline, candidate)
        _refuse_what_grew(metric, baseline, candidate)
        _refuse_what_failed(metric.name, baseline, candidate)
        if len(baseline) == 1:
            return _with_verdict_of_one(found, baseline[0], candidate[0], rules)
        return _with_verdict(found, margin, rules)
    except VerdictRefused as refusal:
        return msgspec.structs.replace(found, reason=str(refusal))


def _with_verdict(found: MetricComparison, margin: Margin, rules: Rules) -> MetricComparison:
    before, after = finite_pairs(found.baseline, found.candidate)
    base = abs(float(before.mean()))
    as_share = margin.is_relative and has_ratio(before, after)
    plain = difference(before, after, across=rules.across, level=rules.level, seed=rules.seed)
    found = msgspec.structs.replace(
        found,
        difference=plain.estimate,
        relative=plain.estimate / base if base else 0.0,
        interval=plain.interval,
        p_value=sign_flip_p(after - before, seed=rules.seed),
    )
    noise = rules.noise.get(found.metric, 0.0)
    if not as_share:
        return _judged(found, plain.interval, found.margin, noise)
    share = relative_change(before, after, across=rules.across, level=rules.level, seed=rules.seed)
    found = msgspec.structs.replace(found, relative=share.estimate, relative_interval=share.interval)
    return _judged(found, share.interval, margin.size, noise / base)


def _judged(found: MetricComparison, interval: Interval, margin: float, noise: float) -> MetricComparison:
    verdict = judge(interval, found.direction, margin)
    name, reason = verdict.name, verdict.reason
    if name in ("better", "worse") and -noise <= interval.high and interval.low <= noise:
        name, reason = "undecided", f"it looks {name}, but no more than the baseline differs from itself: {noise:.3g}"
    return msgspec.structs.replace(found, verdict=name, reason=reason)


def _with_verdict_of_one(
    found: MetricComparison, before: Measurement, after: Measurement, rules: Rules
) -> MetricComparison:
    """One workload, on which the difference is exact: no sample, no p value. How far it carries over to others, the
    spread between windows of it tells.
    """
    finite_pairs(found.baseline, found.candidate)
    try:
        windows = finite_pairs(before.windows.get(found.metric, []), after.windows.get(found.metric, []))
        half = half_width(windows[1] - windows[0], rules.level)
    except VerdictRefused:
        raise VerdictRefused(
            "on this workload the difference is exact, but nothing says how far it carries over to others: this is of "
            "the whole run, or windows of it have too few requests"
        ) from None
    interval = Interval(
        low=found.difference - half,
        high=found.difference + half,
        level=rules.level,
        method=f"t over {len(windows[0])} windows of one workload",
    )
    verdict = judge(interval, found.direction, found.margin)
    reason = (
        f"{verdict.reason}; on this very workload the difference is exact, the interval says how far it carries over"
    )
    return msgspec.structs.replace(found, interval=interval, verdict=verdict.name, reason=reason)


def _pairs(metric: str, baseline: Arm, candidate: Arm) -> list[tuple[float, float]]:
    """The values of those replicates in which both arms have one."""
    return [
        (a.values[metric], b.values[metric])
        for a, b in zip(baseline, candidate, strict=True)
        if metric in a.values and metric in b.values
    ]


def _refuse_what_has_no_value(metric: str, baseline: Arm, candidate: Arm) -> None:
    for name, arm in (("baseline", baseline), ("candidate", candidate)):
        for replicate, measured in enumerate(arm):
            if metric not in measured.values:
                why = measured.refused.get(metric, "it was not measured")
                raise VerdictRefused(f"the {name} has no value in replicate {replicate}: {why}")


def _refuse_what_failed(metric: str, baseline: Arm, candidate: Arm) -> None:
    for name, arm in (("baseline", baseline), ("candidate", candidate)):
        for replicate, measured in enumerate(arm):
            if measured.num_failed and np.isinf(measured.values[metric]):
                raise VerdictRefused(
                    f"{measured.num_failed:,} of {measured.num_requests:,} requests of the {name} failed or did not "
                    f"end in replicate {replicate}: they count as infinitely late, so this is infinite; the first is "
                    f"{measured.first_failure}"
                )


def _refuse_what_grew(metric: MetricFacts, baseline: Arm, candidate: Arm) -> None:
    if not metric.follows_queue:
        return
    for name, arm in (("baseline", baseline), ("candidate", candidate)):
        saturated = sum(measured.saturated for measured in arm)
        if saturated > MOST_SATURATED * len(arm):
            raise VerdictRefused(
                f"the {name}'s queue only grew in {saturated} of {len(arm)} replicates, so this grows or falls with "
                "the length of the run: lower the rate"
            )


def _p_values(comparison: ArmComparison) -> list[float]:
    return [each.p_value for each in comparison.secondary if _is_tested(each) and each.p_value is not None]


def _is_tested(found: MetricComparison) -> bool:
    """Whether chance has a say. Sign flips judge differences by their signs alone, so those that are 0 are no test."""
    return found.p_value is not None and found.baseline != found.candidate


def _with_adjusted(comparison: ArmComparison, adjusted: Sequence[float], level: float, why: str) -> ArmComparison:
    left = iter(adjusted)
    secondary = [_adjusted(each, next(left), level, why) if _is_tested(each) else each for each in comparison.secondary]
    return msgspec.structs.replace(comparison, secondary=secondary)


def _adjusted(found: MetricComparison, p_value: float, level: float, why: str) -> MetricComparison:
    """With an adjusted p value; a difference that this does not bear out is undecided, and `why`."""
    found = msgspec.structs.replace(found, p_value=p_value)
    if found.verdict not in ("better", "worse") or p_value <= 1 - level:
        return found
    return msgspec.structs.replace(found, verdict="undecided", reason=f"it looks {found.verdict}, but {why}")
