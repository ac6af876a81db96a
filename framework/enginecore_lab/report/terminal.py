"""A comparison in the terminal: the verdict, one table of metrics, and the warnings."""

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from enginecore_lab import text
from enginecore_lab.comparison import ArmComparison, Comparison, MetricComparison

_FOLDED = 12
"""Columns that the name of a metric is folded to at least."""

_STYLES = {"better": "green", "worse": "red", "equivalent": "cyan", "undecided": "yellow", "refused": "magenta"}


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print a comparison with one row per metric, or with three lines per metric in a narrow terminal."""
    console.print(Text(comparison.sentence, style="bold"))
    console.print(Text(_facts(comparison), style="dim"))
    for arm in comparison.comparisons:
        console.print()
        console.print(Text(f"{arm.arm} against {comparison.arms[0].name}"))
        console.print(_wide_table(arm, console.width) or _narrow_table(arm))
    for warning in comparison.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"))


def _facts(comparison: Comparison) -> str:
    time = "simulated time" if comparison.virtual else "real time"
    facts = [f"{comparison.name}: {text.pairs(comparison.replicates)}", f"{comparison.loop} loop", time]
    if comparison.comparisons:
        floor = text.quantity(comparison.noise_floor, comparison.comparisons[0].primary.unit)
        facts.append(f"A/A noise floor {floor}")
    return ", ".join([*facts, f"seed {comparison.seed}"])


def _wide_table(arm: ArmComparison, width: int) -> Table | None:
    """The table with a column for each figure; None where that is too narrow for whole numbers."""
    headings = ("baseline", "candidate", f"difference ({_interval(arm.primary)})", "verdict")
    metrics = (arm.primary, *arm.secondary)
    rows = [(*map(Text, (*_values(metric), text.short_estimate(metric))), _verdict(metric)) for metric in metrics]
    figures = sum(max(map(cell_len, map(str, column))) for column in zip(headings, *rows, strict=True))
    names = max(cell_len(metric.metric) for metric in metrics)
    gap = 2 if width - figures - 2 * len(headings) >= names else 1
    room = width - figures - gap * len(headings)
    if room < min(names, _FOLDED):
        return None
    table = _table(gap)
    table.add_column("metric", overflow="fold", width=min(names, room))
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "verdict" else "right", no_wrap=True)
    for metric, cells in zip(metrics, rows, strict=True):
        table.add_row(Text(metric.metric), *cells, style=_emphasis(metric, arm))
    return table


def _narrow_table(arm: ArmComparison) -> Table:
    table = _table(gap=2)
    table.add_column("metric\nbaseline\ncandidate", overflow="fold")
    table.add_column(f"verdict\ndifference ({_interval(arm.primary)})", no_wrap=True)
    for metric in (arm.primary, *arm.secondary):
        left = Text("\n").join(map(Text, (metric.metric, *_values(metric))))
        right = Text("\n").join([_verdict(metric), Text(text.short_estimate(metric))])
        table.add_row(left, right, style=_emphasis(metric, arm))
    return table


def _table(gap: int) -> Table:
    return Table(box=SIMPLE_HEAD, padding=(0, gap - 1, 0, 0), pad_edge=False, show_edge=False)


def _values(metric: MetricComparison) -> tuple[str, str]:
    baseline, candidate = (
        text.quantity(text.mean(values), metric.unit) for values in (metric.baseline, metric.candidate)
    )
    return baseline, candidate


def _interval(metric: MetricComparison) -> str:
    return "CI" if metric.interval is None else f"{text.level(metric.interval)} CI"


def _verdict(metric: MetricComparison) -> Text:
    return Text(text.verdict(metric), style=_STYLES[metric.verdict])


def _emphasis(metric: MetricComparison, arm: ArmComparison) -> str:
    return "bold" if metric is arm.primary else ""
