"""Rows of the page's tables, every cell as text."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from enginecore_lab import text
from enginecore_lab.comparison import ArmComparison, ArmSummary, Comparison, MetricComparison
from enginecore_lab.report.timeline import outcome, time_in_system, worst_requests
from enginecore_lab.run import RequestRun, Run


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric of an arm against the baseline.

    Attributes:
        verdict: As `MetricComparison` names it.
        said: The verdict in a word for people.
    """

    metric: str
    better: str
    baseline: str
    candidate: str
    difference: str
    interval: str
    p_value: str
    margin: str
    verdict: str
    said: str
    reason: str


@dataclass(frozen=True, slots=True)
class ArmRow:
    """One arm: in how many replicates its queue only grew, and how its representative run ended."""

    name: str
    saturated: str
    incomplete: str
    makespan: str


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One of the worst requests."""

    request_id: str
    tenant: str
    prompt: str
    output: str
    cached: str
    arrival: str
    queued: str
    ttft: str
    total: str
    preemptions: str
    outcome: str


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting in every arm.

    Attributes:
        key: Dotted.
        values: One per arm; a dash where the arm has no such setting.
        differs: Whether not all arms have the same.
    """

    key: str
    values: list[str]
    differs: bool


def metric_rows(arm: ArmComparison) -> list[MetricRow]:
    """The primary metric first."""
    return [metric_row(metric) for metric in (arm.primary, *arm.secondary)]


def metric_row(metric: MetricComparison) -> MetricRow:
    """Cells of a metric's row, with a true minus sign before what is negative."""
    return MetricRow(
        metric=metric.metric,
        better=text.better_way(metric),
        baseline=_typeset(text.quantity(text.mean(metric.baseline), metric.unit)),
        candidate=_typeset(text.quantity(text.mean(metric.candidate), metric.unit)),
        difference=_typeset(text.difference(metric)),
        interval=_typeset(text.interval(metric)),
        p_value=text.p_value(metric),
        margin=text.margin(metric),
        verdict=metric.verdict,
        said=text.verdict(metric),
        reason=metric.reason,
    )


def request_rows(run: Run) -> list[RequestRow]:
    """The same as have timelines, in the same order."""
    return [_request_row(run, each) for each in worst_requests(run)]


def _request_row(run: Run, each: RequestRun) -> RequestRow:
    request = each.request
    queued = None if each.first_scheduled is None else each.first_scheduled - each.arrival
    ttft = each.token_times[0] - each.arrival if each.token_times else None
    return RequestRow(
        request_id=request.request_id,
        tenant=request.tenant,
        prompt=f"{request.num_prompt_tokens:,}",
        output=f"{len(each.token_times):,} of {request.num_output_tokens:,}",
        cached=f"{each.num_cached_tokens:,}",
        arrival=f"{each.arrival:.6g} s",
        queued=_seconds(queued),
        ttft=_seconds(ttft),
        total=_seconds(time_in_system(each, run.makespan)),
        preemptions=str(each.num_preemptions),
        outcome=outcome(each) if each.error is None else f"{outcome(each)}: {each.error}",
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else text.quantity(value, "s")


def arm_rows(comparison: Comparison, runs: Mapping[str, Run]) -> list[ArmRow]:
    """Rows of arms, in the experiment's order."""
    return [_arm_row(arm, comparison.replicates, runs.get(arm.name)) for arm in comparison.arms]


def _arm_row(arm: ArmSummary, replicates: int, run: Run | None) -> ArmRow:
    saturated = f"{arm.saturated} of {replicates}"
    if run is None:
        return ArmRow(arm.name, saturated, incomplete="-", makespan="-")
    incomplete = sum(not each.is_complete for each in run.requests)
    return ArmRow(arm.name, saturated, f"{incomplete:,} of {len(run.requests):,}", text.quantity(run.makespan, "s"))


def setting_rows(arms: list[dict[str, Any]]) -> list[SettingRow]:
    """All keys of nested settings in order of their names."""
    flat = [dict(_flatten(settings)) for settings in arms]
    rows = []
    for key in sorted({key for settings in flat for key in settings}):
        values = [settings.get(key, "-") for settings in flat]
        rows.append(SettingRow(key, values, differs=len(set(values)) > 1))
    return rows


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found = []
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            found += _flatten(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", as_json(value, indent=None)))
    return found


def as_json(value: Any, indent: int | None = 2) -> str:
    """Plain values as people read them."""
    return json.dumps(value, indent=indent, ensure_ascii=False, default=str)


def _typeset(cell: str) -> str:
    return cell.replace("-", "\N{MINUS SIGN}")
