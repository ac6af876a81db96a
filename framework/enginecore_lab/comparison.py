"""Results of a comparison, as they stand in `result.json`."""

from typing import Any, Literal

import msgspec

from enginecore_lab.interfaces import Direction

VerdictName = Literal["better", "worse", "equivalent", "undecided", "refused"]


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A confidence interval of a difference, and how it was made."""

    low: float
    high: float
    level: float
    method: str


class MetricComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one arm against the baseline, over all replicates.

    Attributes:
        metric: Name of the metric, e.g. "ttft_p50".
        unit: E.g. "s"; "" for shares and counts.
        direction: Whether higher or lower is better.
        baseline: The baseline's value per replicate.
        candidate: The candidate's value per replicate, paired with it.
        difference: Estimate of candidate - baseline, in the metric's unit.
        relative: The same as a share of the baseline; 0 if that is 0.
        interval: Confidence interval of the difference; None where a verdict was refused.
        p_value: Two-sided, by sign flips; of secondary metrics adjusted after Holm. None: not random, or refused.
        margin: Differences smaller than this, in the metric's unit, do not matter.
        verdict: From the interval against the margin; from the relative one where the margin is a share.
        reason: One sentence that says why.
        relative_interval: Confidence interval of the change as a share of the baseline; where the
            margin is a share, the one that decides. None: refused, the margin is no share, or not
            all values are above 0.
    """

    metric: str
    unit: str
    direction: Direction
    baseline: list[float]
    candidate: list[float]
    difference: float
    relative: float
    interval: Interval | None
    p_value: float | None
    margin: float
    verdict: VerdictName
    reason: str
    relative_interval: Interval | None = None


class ArmComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One arm against the baseline: the primary metric first, then the secondary ones."""

    arm: str
    primary: MetricComparison
    secondary: list[MetricComparison]


class ArmSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One arm, and its metrics per replicate.

    Attributes:
        name: As in the experiment.
        settings: Complete, as plain values.
        info: Facts and limits in force: `EngineInfo` as plain values.
        metrics: Values per replicate, by metric.
        saturated: In how many replicates the queue only grew.
    """

    name: str
    settings: dict[str, Any]
    info: dict[str, Any]
    metrics: dict[str, list[float]]
    saturated: int = 0


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A whole experiment's outcome.

    Attributes:
        name: Name of the experiment.
        sentence: The verdict in one sentence.
        loop: How requests came: "open", "closed" or "partly open".
        virtual: Whether time was simulated.
        replicates: How many pairs.
        seed: Seed of the experiment.
        arms: The baseline first.
        comparisons: Each other arm against the baseline.
        noise_floor: Half width of the A/A interval of the primary metric; exactly 0 in virtual time.
        warnings: Facts that a reader must know before believing it.
        experiment: The experiment file as read, as plain values.
        workload_hashes: SHA-256 of each replicate's workload.
        versions: Versions of Python, packages and plugins.
        command: Repeats it.
        created: When it was made; the one field that two equal runs may differ in.
    """

    name: str
    sentence: str
    loop: str
    virtual: bool
    replicates: int
    seed: int
    arms: list[ArmSummary]
    comparisons: list[ArmComparison]
    noise_floor: float
    warnings: list[str]
    experiment: dict[str, Any]
    workload_hashes: list[str]
    versions: dict[str, str]
    command: str
    created: str
