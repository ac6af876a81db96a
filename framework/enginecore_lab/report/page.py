"""One self-contained page: opens without a network, and comes out the same for the same comparison and runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jinja2
from plotly.offline import get_plotlyjs

from enginecore_lab import text
from enginecore_lab.comparison import Comparison
from enginecore_lab.report import run_figures, verdict_figures
from enginecore_lab.report.figures import Picture
from enginecore_lab.report.palette import ASSETS, STYLE
from enginecore_lab.report.run_figures import Runs
from enginecore_lab.report.tables import arm_rows, as_json, metric_row, metric_rows, request_rows, setting_rows
from enginecore_lab.run import Run


@dataclass(frozen=True, slots=True)
class Section:
    """Pictures that belong together.

    Attributes:
        title: Heading of the section.
        lead: A sentence or two below it.
        figures: In order.
        columns: Pictures side by side, where there is room.
    """

    title: str
    lead: str
    figures: list[Picture]
    columns: int = 2


def render(comparison: Comparison, runs: Mapping[str, Run]) -> str:
    """The page as text; arguments and errors as of `enginecore_lab.report.write_html`."""
    ordered = _in_order(comparison, runs)
    sections = [_verdict_section(comparison), *_run_sections(ordered)]
    figures = [figure for section in sections for figure in section.figures]
    return (
        _environment()
        .get_template("report.html")
        .render(
            comparison=comparison,
            sections=sections,
            figures={figure.id: figure.for_page() for figure in figures},
            arms=arm_rows(comparison, runs),
            runs=ordered,
            settings=setting_rows([arm.settings for arm in comparison.arms]),
            info=setting_rows([arm.info for arm in comparison.arms]),
            plotly=get_plotlyjs(),
            style=STYLE,
            script=(ASSETS / "report.js").read_text(encoding="utf-8"),
        )
    )


def _environment() -> jinja2.Environment:
    """Templates that escape everything but style and scripts."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ASSETS),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    functions: dict[str, Any] = {
        "metric_row": metric_row,
        "metric_rows": metric_rows,
        "request_rows": request_rows,
        "quantity": text.quantity,
        "level": text.level,
        "pairs": text.pairs,
        "as_json": as_json,
    }
    environment.globals |= functions
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "allow_nan": False}  # NaN is no JSON
    return environment


def _in_order(comparison: Comparison, runs: Mapping[str, Run]) -> Runs:
    names = [arm.name for arm in comparison.arms]
    if strange := [name for name in runs if name not in names]:
        raise ValueError(f"runs of {strange} belong to no arm: the comparison has {names}")
    ordered = [(name, index, runs[name]) for index, name in enumerate(names) if name in runs]
    asked = [[request.request_id for request in run.workload.requests] for _, _, run in ordered]
    if any(ids != asked[0] for ids in asked):
        raise ValueError(f"the runs of {list(runs)} are of different workloads: pictures need one run of the same each")
    return ordered


def _verdict_section(comparison: Comparison) -> Section:
    if not comparison.comparisons:
        return Section("Differences", "There is one arm only, and nothing to compare it with.", [])
    figures = [verdict_figures.forest(comparison, arm, index) for index, arm in enumerate(comparison.comparisons)]
    figures.append(verdict_figures.paired_scatter(comparison))
    return Section("Differences", "Every metric of every arm against the baseline, over all replicates.", figures)


def _run_sections(runs: Runs) -> list[Section]:
    """Sections on one run per arm; none where there are no runs."""
    if not runs:
        return []
    workload = runs[0][2].workload
    shown = f"One replicate of {workload.name}: {len(workload.requests):,} requests, the same in every arm."
    served = run_figures.tenants(runs)
    found = [
        Section("Latencies", shown, run_figures.latencies(runs), columns=3),
        Section("Over time", "The same replicate.", run_figures.over_time(runs)),
        Section("Tenants", "The same replicate. Parallel lines are equal shares.", served),
        Section("Worst requests", "The same replicate.", run_figures.worst(runs)),
    ]
    return [section for section in found if section.figures]
