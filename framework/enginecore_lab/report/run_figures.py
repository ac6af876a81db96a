"""Pictures of one run per arm: latencies, what happened over time, tenants, and the worst requests."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from enginecore_lab.metrics import samples
from enginecore_lab.metrics.samples import TakeSamples
from enginecore_lab.report.figures import (
    Picture,
    add_row_label,
    axis,
    log_ticks,
    new_figure,
    plain,
    rows_axis,
    spans_decades,
    time_unit,
)
from enginecore_lab.report.palette import LIGHT, arm_colour, tenant_colour
from enginecore_lab.report.series import (
    Distribution,
    Floats,
    Levels,
    as_list,
    decode_tokens,
    ecdf,
    kv_usage,
    prefill_tokens,
    queue_length,
    tenant_service,
    time_edges,
)
from enginecore_lab.report.timeline import PHASES, Phase, Segment, outcome, segments, time_in_system, worst_requests
from enginecore_lab.run import RequestRun, Run
from enginecore_lab.text import quantity

Runs = Sequence[tuple[str, int, Run]]
"""The name of an arm, its place in the experiment, and its run."""

_ROW_HEIGHT = 44


def latencies(runs: Runs) -> list[Picture]:
    """Distributions of TTFT, ITL and E2E latency, all arms in one picture each."""
    all_requests = "Share of all requests offered: a curve that ends below 100 % is short of those that failed."
    itl = "Gaps between the tokens of a request, of all requests together: long outputs weigh more."
    return [
        _distribution("ttft", "Time to first token (TTFT)", "requests", all_requests, runs, samples.ttft),
        _distribution("itl", "Inter-token latency (ITL)", "gaps", itl, runs, samples.itl),
        _distribution("e2e", "End-to-end latency (E2E)", "requests", all_requests, runs, samples.e2e),
    ]


def _distribution(id: str, title: str, of: str, caption: str, runs: Runs, take: TakeSamples) -> Picture:
    curves = {name: ecdf(take(run.requests, None)) for name, _, run in runs}
    shown = np.concatenate([np.empty(0), *(curve.values for curve in curves.values())])
    x_axis = axis("latency (s)", rangemode="tozero")
    if spans_decades(shown):
        positive = shown[shown > 0]
        x_axis = axis("latency") | log_ticks(float(positive.min()), float(positive.max()), "s")
    figure = new_figure(*(_curve(name, index, curves[name]) for name, index, _ in runs))
    figure.update_layout(
        hovermode="closest", xaxis=x_axis, yaxis=axis(f"share of {of}", tickformat=".0%", range=[0, 1.02])
    )
    return Picture(f"ecdf-{id}", title, caption, 340, figure)


def _curve(name: str, index: int, curve: Distribution) -> go.Scatter:
    points = zip(curve.values.tolist(), curve.shares.tolist(), strict=True)
    return go.Scatter(
        mode="lines",
        x=as_list(curve.values),
        y=as_list(curve.shares),
        line={"color": arm_colour(index), "width": _width(index), "shape": "hv"},
        name=plain(name),
        hoverinfo="text+name",
        hovertext=[f"{share:.2%} within {quantity(value, 's')}" for value, share in points],
    )


def _width(index: int) -> float:
    """The baseline, drawn first, is the widest line: it shows even below others that are equal to it."""
    return 1.6 if index else 3.2


def over_time(runs: Runs) -> list[Picture]:
    """Queue and KV usage, all arms in one picture each; what the batches held, one picture per arm."""
    edges = _common_edges(runs)
    divisor, unit = time_unit(edges[-1])
    held = f"Mean over every {quantity(edges[1] - edges[0], 's')}, from the start to the last end."
    time_axis = axis(f"time ({unit})", range=[0, edges[-1] / divisor])
    figures = []
    for id, title, y_axis, of in (
        ("queue", "Requests waiting", axis("requests", rangemode="tozero"), queue_length),
        ("kv", "KV cache in use", axis("share of blocks", tickformat=".0%", range=[0, 1.02]), kv_usage),
    ):
        figure = new_figure(*(_line(name, index, of(run), edges, divisor) for name, index, run in runs))
        figure.update_layout(hovermode="x unified", xaxis=time_axis, yaxis=y_axis)
        figures.append(Picture(id, title, held, 300, figure))
    return figures + _batches(runs, edges)


def _common_edges(runs: Runs) -> Floats:
    return time_edges(max((run.makespan for _, _, run in runs), default=0.0))


def _middles(edges: Floats, divisor: float) -> list[float]:
    return as_list((edges[:-1] + edges[1:]) / 2 / divisor)


def _line(name: str, index: int, levels: Levels, edges: Floats, divisor: float) -> go.Scatter:
    return go.Scatter(
        mode="lines",
        x=_middles(edges, divisor),
        y=as_list(levels.mean(edges)),
        line={"color": arm_colour(index), "width": _width(index)},
        name=plain(name),
    )


def _batches(runs: Runs, edges: Floats) -> list[Picture]:
    """Two strips on one time axis: decodes are few beside a prompt, and would not be seen on its scale."""
    made = [
        (name, index, (prefill_tokens(run).mean(edges), decode_tokens(run).mean(edges))) for name, index, run in runs
    ]
    tops = [max(float(parts[place].max()) for _, _, parts in made) or 1.0 for place in (0, 1)]
    return [_batch(name, index, parts, tops, edges) for name, index, parts in made]


def _batch(name: str, index: int, parts: tuple[Floats, Floats], tops: list[float], edges: Floats) -> Picture:
    divisor, unit = time_unit(edges[-1])
    figure = new_figure()
    figure.update_layout(
        hovermode="x unified",
        showlegend=False,
        xaxis=axis(f"time ({unit})", range=[0, edges[-1] / divisor], anchor="y2"),
    )
    for tokens, top, kind, place, domain in zip(
        parts, tops, ("prefill", "decode"), ("", "2"), ([0.54, 1], [0, 0.46]), strict=True
    ):
        figure.update_layout({f"yaxis{place}": axis(f"{kind} tokens", range=[0, top * 1.05], domain=domain)})
        figure.add_trace(
            go.Scatter(
                mode="lines",
                x=_middles(edges, divisor),
                y=as_list(tokens),
                yaxis=f"y{place}",
                fill="tozeroy",
                line={"width": 1, "color": LIGHT[kind]},
                name=f"{kind} tokens",
            )
        )
    caption = "Tokens that the step under way computes, mean over time; none between steps. Equal axes for all arms."
    return Picture(f"batch-{index}", f"Batches: {name}", caption, 340, figure)


def tenants(runs: Runs) -> list[Picture]:
    """Service of each tenant over time, one picture per arm; none for a single tenant."""
    edges = _common_edges(runs)
    served = [(name, index, tenant_service(run, edges)) for name, index, run in runs]
    if not any(len(service) > 1 for _, _, service in served):
        return []
    highest = max(float(given[-1]) for _, _, service in served for given in service.values()) or 1.0
    return [_service(name, index, service, edges, highest) for name, index, service in served]


def _service(name: str, index: int, service: Mapping[str, Floats], edges: Floats, highest: float) -> Picture:
    divisor, unit = time_unit(edges[-1])
    figure = new_figure()
    for place, (tenant, given) in enumerate(service.items()):
        figure.add_trace(
            go.Scatter(
                mode="lines",
                x=[0.0, *as_list(edges[1:] / divisor)],
                y=[0.0, *as_list(given)],
                line={"color": tenant_colour(place), "width": 2},
                name=plain(tenant),
            )
        )
    figure.update_layout(
        hovermode="x unified",
        xaxis=axis(f"time ({unit})", range=[0, edges[-1] / divisor]),
        yaxis=axis("weighted tokens served", range=[0, highest * 1.05]),
    )
    caption = "Sum so far of prompt tokens, counted when first scheduled, and twice the output tokens."
    return Picture(f"tenants-{index}", f"Service per tenant: {name}", caption, 320, figure)


def worst(runs: Runs) -> list[Picture]:
    """Timelines of the worst requests, one picture per arm, on equal axes."""
    found = [(name, index, run, worst_requests(run)) for name, index, run in runs]
    longest = max((time_in_system(each, run.makespan) for _, _, run, worst in found for each in worst), default=1.0)
    return [_timelines(name, index, run, requests, longest) for name, index, run, requests in found]


def _timelines(name: str, index: int, run: Run, requests: Sequence[RequestRun], longest: float) -> Picture:
    figure = new_figure()
    for phase in PHASES:
        figure.add_trace(_phase_bars(run, requests, phase))
    for row, each in enumerate(requests):
        add_row_label(figure, _request_label(run, each), row - 0.12)
    figure.update_layout(
        barmode="overlay",
        hovermode="closest",
        xaxis=axis("time since arrival (s)", range=[0, (longest or 1.0) * 1.02]),
        yaxis=rows_axis(len(requests)),
    )
    caption = (
        "From their arrival on: requests that failed or did not end, if any, then those that were longest in the "
        "system. Lines in a prefill part its pieces."
    )
    height = 110 + _ROW_HEIGHT * max(len(requests), 1)
    return Picture(f"worst-{index}", f"Worst requests: {name}", caption, height, figure)


def _phase_bars(run: Run, requests: Sequence[RequestRun], phase: Phase) -> go.Bar:
    """The segments of one phase, of all requests, each in its request's row."""
    found = [
        (row, each.arrival, segment)
        for row, each in enumerate(requests)
        for segment in segments(run, each)
        if segment.phase == phase
    ]
    return go.Bar(
        orientation="h",
        x=as_list(np.array([segment.end - segment.start for _, _, segment in found])),
        base=as_list(np.array([segment.start - arrival for _, arrival, segment in found])),
        y=[row for row, _, _ in found],
        width=0.36,
        marker={"color": LIGHT[phase], "line": {"color": LIGHT["panel"], "width": 0.6 * (phase == "prefill")}},
        name=phase,
        hoverinfo="text",
        hovertext=[_segment_hover(segment) for _, _, segment in found],
    )


def _segment_hover(segment: Segment) -> str:
    tokens = f", {segment.tokens:,} tokens" if segment.tokens else ""
    return f"{segment.phase} {quantity(segment.end - segment.start, 's')}{tokens}, from {segment.start:.6g} s"


def _request_label(run: Run, each: RequestRun) -> str:
    request = each.request
    parts = [f"<b>{plain(_shortened(request.request_id))}</b> {quantity(time_in_system(each, run.makespan), 's')}"]
    if not each.is_complete:
        parts.append(outcome(each))
    if each.num_preemptions:
        parts.append(f"preempted {each.num_preemptions}x")
    parts.append(f"{request.num_prompt_tokens:,}+{request.num_output_tokens:,} tokens")
    return ", ".join(parts)


def _shortened(text: str, at_most: int = 18) -> str:
    return text if len(text) <= at_most else f"{text[: at_most - 1]}…"
