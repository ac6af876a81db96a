"""Pictures of the verdict: every metric's difference with its interval, and the pairs behind the primary one."""

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from enginecore_lab.comparison import ArmComparison, Comparison, MetricComparison
from enginecore_lab.report.figures import Picture, add_row_label, axis, new_figure, plain, rows_axis
from enginecore_lab.report.palette import LIGHT, arm_colour
from enginecore_lab.text import (
    better_way,
    difference,
    estimate,
    mean,
    quantity,
    relative_interval,
    relative_margin,
    verdict,
)

WIDEST = 1.0
"""Differences beyond this share of the baseline are drawn at the edge of the forest plot."""

_ROW_HEIGHT = 44
_ARROWS = {"lower": "↓", "higher": "↑"}


def forest(comparison: Comparison, arm: ArmComparison, index: int) -> Picture:
    """All metrics of one arm as relative differences with their intervals and margins.

    Args:
        comparison: The whole, for the axis to be the same for every arm.
        arm: Arm of the comparisons.
        index: Index of the arm among the comparisons.
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
    figure = new_figure()
    figure.update_layout(
        showlegend=False,
        hovermode="closest",
        xaxis=axis("difference from the baseline", tickformat="+.0~%", range=list(span), zeroline=True),
        yaxis=rows_axis(len(metrics)),
    )
    for row, metric in enumerate(metrics):
        figure.add_trace(_forest_row(metric, row, span))
        _add_margin_band(figure, metric, row, span)
        add_row_label(figure, _forest_label(metric), row)
    title = f"{arm.arm} against {comparison.arms[0].name}"
    return Picture(f"forest-{index}", title, caption, 90 + _ROW_HEIGHT * max(len(metrics), 1), figure)


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
    return f"{name}  {difference(metric)}, {verdict(metric)}".replace("-", "\N{MINUS SIGN}")


def _forest_row(metric: MetricComparison, row: int, span: tuple[float, float]) -> go.Scatter:
    colour = LIGHT[metric.verdict]
    ends = relative_interval(metric) or (metric.relative, metric.relative)
    points = [ends[0], metric.relative, ends[1]]
    symbols = ["line-ns", "diamond" if metric.interval else "diamond-open", "line-ns"]
    for place, value in enumerate(points):
        if not span[0] <= value <= span[1]:
            points[place] = max(span[0], min(value, span[1]))
            symbols[place] = "triangle-right" if value > 0 else "triangle-left"
    return go.Scatter(
        mode="lines+markers",
        x=points,
        y=[row] * 3,
        line={"color": colour, "width": 3},
        marker={"color": colour, "size": 11, "symbol": symbols, "line": {"color": colour, "width": 2}},
        hoverinfo="text",
        hovertext=_forest_hover(metric),
        cliponaxis=False,
    )


def _forest_hover(metric: MetricComparison) -> str:
    lines = [
        f"{plain(metric.metric)}, {better_way(metric)}",
        f"{quantity(mean(metric.baseline), metric.unit)} to {quantity(mean(metric.candidate), metric.unit)}",
        f"difference {estimate(metric)}",
        f"verdict: {verdict(metric)}",
    ]
    return "<br>".join(lines)


def _add_margin_band(figure: go.Figure, metric: MetricComparison, row: int, span: tuple[float, float]) -> None:
    margin = relative_margin(metric) or 0.0
    figure.add_shape(
        type="rect",
        x0=max(-margin, span[0]),
        x1=min(margin, span[1]),
        y0=row - 0.14,
        y1=row + 0.14,
        fillcolor=LIGHT["band"],
        line={"width": 0},
        layer="below",
    )


def paired_scatter(comparison: Comparison) -> Picture:
    """The primary metric of every replicate: baseline across, candidates up."""
    metrics = [arm.primary for arm in comparison.comparisons]
    values = [value for metric in metrics for value in (*metric.baseline, *metric.candidate) if math.isfinite(value)]
    factor, unit = _scale(values, metrics[0].unit)
    low, high = (min(values, default=0.0) * factor, max(values, default=1.0) * factor)
    room = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    ends = [low - room, high + room]
    margin = metrics[0].margin if math.isfinite(metrics[0].margin) else 0.0
    figure = new_figure()
    _add_diagonal(figure, ends, margin * factor)
    for index, arm in enumerate(comparison.comparisons, start=1):
        figure.add_trace(_pairs(arm, index, factor))
    name = f"{metrics[0].metric} ({unit})" if unit else metrics[0].metric
    figure.update_layout(
        hovermode="closest",
        xaxis=axis(f"baseline: {plain(name)}", range=ends),
        yaxis=axis(f"candidate: {plain(name)}", range=ends),
    )
    below = "below" if metrics[0].direction == "lower" else "above"
    caption = (
        "One point per replicate: both arms had the same requests at the same times. On the line they are equal; the "
        f"band is the margin; {below} it the candidate is better."
    )
    return Picture("pairs", f"{metrics[0].metric}, pair by pair", caption, 420, figure)


def _scale(values: Sequence[float], unit: str) -> tuple[float, str]:
    if unit == "s" and values and max(map(abs, values)) < 1:
        return 1000.0, "ms"
    return 1.0, unit


def _add_diagonal(figure: go.Figure, ends: list[float], margin: float) -> None:
    band = go.Scatter(
        mode="lines",
        x=[ends[0], ends[1], ends[1], ends[0], ends[0]],
        y=[ends[0] - margin, ends[1] - margin, ends[1] + margin, ends[0] + margin, ends[0] - margin],
        fill="toself",
        fillcolor=LIGHT["band"],
        line={"width": 0},
        name="margin",
        hoverinfo="skip",
    )
    line = go.Scatter(
        mode="lines",
        x=ends,
        y=ends,
        line={"color": LIGHT["muted"], "dash": "dot", "width": 1.5},
        name="equal",
        hoverinfo="skip",
    )
    figure.add_traces([band, line])


def _pairs(arm: ArmComparison, index: int, factor: float) -> go.Scatter:
    metric = arm.primary
    found = enumerate(zip(metric.baseline, metric.candidate, strict=True))
    pairs = [(place, a, b) for place, (a, b) in found if math.isfinite(a) and math.isfinite(b)]
    unit = metric.unit
    return go.Scatter(
        mode="markers",
        x=[a * factor for _, a, _ in pairs],
        y=[b * factor for _, _, b in pairs],
        marker={"color": arm_colour(index), "size": 9, "line": {"color": LIGHT["panel"], "width": 1}},
        name=plain(arm.arm),
        hoverinfo="text",
        hovertext=[f"replicate {place}: {quantity(a, unit)} to {quantity(b, unit)}" for place, a, b in pairs],
    )
