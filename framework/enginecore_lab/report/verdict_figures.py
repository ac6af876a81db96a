"""Pictures of the verdict: every metric's difference with its interval, and the pairs behind the primary one."""

import math
from collections.abc import Sequence

from enginecore_lab.comparison import ArmComparison, Comparison, MetricComparison
from enginecore_lab.report.figures import Figure, Layout, Trace, arm_colour, axis, plain, row_label, rows_axis
from enginecore_lab.report.text import (
    better_way,
    difference,
    interval,
    mean,
    quantity,
    relative_interval,
    relative_margin,
)

WIDEST = 1.0
"""Differences beyond this share of the baseline are drawn at the edge of the forest plot."""

_ROW_HEIGHT = 44
_ARROWS = {"lower": "↓", "higher": "↑"}


def forest(comparison: Comparison, arm: ArmComparison, index: int) -> Figure:
    """All metrics of one arm as relative differences with their intervals and margins.

    Args:
        comparison: The whole, for the axis to be the same for every arm.
        arm: Whose.
        index: Its place among the comparisons.
    """
    metrics = [metric for metric in (arm.primary, *arm.secondary) if _can_be_drawn(metric)]
    left_out = [metric.metric for metric in (arm.primary, *arm.secondary) if not _can_be_drawn(metric)]
    caption = (
        "Difference from the baseline as a share of its mean, with its confidence interval; the band is the margin "
        "within which a difference does not matter. The arrow says which way is better."
    )
    if left_out:
        caption += f" Not drawn, for want of a finite baseline other than 0: {', '.join(left_out)}."
    span = _span(comparison)
    traces = [_forest_row(metric, row, span) for row, metric in enumerate(metrics)]
    layout: Layout = {
        "showlegend": False,
        "hovermode": "closest",
        "xaxis": axis("difference from the baseline", tickformat="+.0~%", range=list(span), zeroline=True),
        "yaxis": rows_axis(len(metrics)),
        "shapes": [_margin_band(metric, row, span) for row, metric in enumerate(metrics)],
        "annotations": [row_label(_forest_label(metric), row) for row, metric in enumerate(metrics)],
    }
    title = f"{arm.arm} against {comparison.arms[0].name}"
    return Figure(f"forest-{index}", title, caption, 90 + _ROW_HEIGHT * max(len(metrics), 1), traces, layout)


def _can_be_drawn(metric: MetricComparison) -> bool:
    return relative_margin(metric) is not None and math.isfinite(metric.relative)


def _span(comparison: Comparison) -> tuple[float, float]:
    """Both ends of the axis: room for every interval drawn, and the same in every arm."""
    ends = [-0.01, 0.01]
    for arm in comparison.comparisons:
        for metric in filter(_can_be_drawn, (arm.primary, *arm.secondary)):
            margin = relative_margin(metric) or 0.0
            ends += [-margin, margin, *(relative_interval(metric) or ())]
    shown = [max(-WIDEST, min(end, WIDEST)) for end in ends if math.isfinite(end)]
    room = 0.06 * (max(shown) - min(shown))
    return min(shown) - room, max(shown) + room


def _forest_label(metric: MetricComparison) -> str:
    name = f"<b>{plain(metric.metric)}</b> {_ARROWS[metric.direction]}"
    return f"{name}  {difference(metric)}, {metric.verdict}".replace("-", "\N{MINUS SIGN}")


def _forest_row(metric: MetricComparison, row: int, span: tuple[float, float]) -> Trace:
    colour = f"var(--{metric.verdict})"
    ends = relative_interval(metric) or (metric.relative, metric.relative)
    points = [ends[0], metric.relative, ends[1]]
    symbols = ["line-ns", "diamond" if metric.interval else "diamond-open", "line-ns"]
    for place, value in enumerate(points):
        if not span[0] <= value <= span[1]:
            points[place] = max(span[0], min(value, span[1]))
            symbols[place] = "triangle-right" if value > 0 else "triangle-left"
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": points,
        "y": [row] * 3,
        "line": {"color": colour, "width": 3},
        "marker": {"color": colour, "size": 11, "symbol": symbols, "line": {"color": colour, "width": 2}},
        "hoverinfo": "text",
        "hovertext": _forest_hover(metric),
        "cliponaxis": False,
    }


def _forest_hover(metric: MetricComparison) -> str:
    lines = [
        f"{plain(metric.metric)}, {better_way(metric)}",
        f"{quantity(mean(metric.baseline), metric.unit)} to {quantity(mean(metric.candidate), metric.unit)}",
        f"difference {difference(metric)}, interval {interval(metric)}",
        f"verdict: {metric.verdict}",
    ]
    return "<br>".join(lines)


def _margin_band(metric: MetricComparison, row: int, span: tuple[float, float]) -> dict[str, object]:
    margin = relative_margin(metric) or 0.0
    return {
        "type": "rect",
        "x0": max(-margin, span[0]),
        "x1": min(margin, span[1]),
        "y0": row - 0.14,
        "y1": row + 0.14,
        "fillcolor": "var(--band)",
        "line": {"width": 0},
        "layer": "below",
    }


def paired_scatter(comparison: Comparison) -> Figure:
    """The primary metric of every replicate: baseline across, candidates up."""
    metrics = [arm.primary for arm in comparison.comparisons]
    values = [value for metric in metrics for value in (*metric.baseline, *metric.candidate) if math.isfinite(value)]
    factor, unit = _scale(values, metrics[0].unit)
    low, high = (min(values, default=0.0) * factor, max(values, default=1.0) * factor)
    room = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    ends = [low - room, high + room]
    margin = metrics[0].margin if math.isfinite(metrics[0].margin) else 0.0
    traces = _diagonal(ends, margin * factor)
    for index, arm in enumerate(comparison.comparisons, start=1):
        traces.append(_pairs(arm, index, factor))
    name = f"{metrics[0].metric} ({unit})" if unit else metrics[0].metric
    layout: Layout = {
        "hovermode": "closest",
        "xaxis": axis(f"baseline: {plain(name)}", range=ends),
        "yaxis": axis(f"candidate: {plain(name)}", range=ends),
    }
    below = "below" if metrics[0].direction == "lower" else "above"
    caption = (
        "One point per replicate: both arms had the same requests at the same times. On the line they are equal; the "
        f"band is the margin; {below} it the candidate is better."
    )
    return Figure("pairs", f"{metrics[0].metric}, pair by pair", caption, 420, traces, layout)


def _scale(values: Sequence[float], unit: str) -> tuple[float, str]:
    if unit == "s" and values and max(map(abs, values)) < 1:
        return 1000.0, "ms"
    return 1.0, unit


def _diagonal(ends: list[float], margin: float) -> list[Trace]:
    band = {
        "type": "scatter",
        "mode": "lines",
        "x": [ends[0], ends[1], ends[1], ends[0], ends[0]],
        "y": [ends[0] - margin, ends[1] - margin, ends[1] + margin, ends[0] + margin, ends[0] - margin],
        "fill": "toself",
        "fillcolor": "var(--band)",
        "line": {"width": 0},
        "name": "margin",
        "hoverinfo": "skip",
    }
    line = {
        "type": "scatter",
        "mode": "lines",
        "x": ends,
        "y": ends,
        "line": {"color": "var(--muted)", "dash": "dot", "width": 1.5},
        "name": "equal",
        "hoverinfo": "skip",
    }
    return [band, line]


def _pairs(arm: ArmComparison, index: int, factor: float) -> Trace:
    metric = arm.primary
    found = enumerate(zip(metric.baseline, metric.candidate, strict=True))
    pairs = [(place, a, b) for place, (a, b) in found if math.isfinite(a) and math.isfinite(b)]
    unit = metric.unit
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [a * factor for _, a, _ in pairs],
        "y": [b * factor for _, _, b in pairs],
        "marker": {"color": arm_colour(index), "size": 9, "line": {"color": "var(--panel)", "width": 1}},
        "name": plain(arm.arm),
        "hoverinfo": "text",
        "hovertext": [f"replicate {place}: {quantity(a, unit)} to {quantity(b, unit)}" for place, a, b in pairs],
    }
