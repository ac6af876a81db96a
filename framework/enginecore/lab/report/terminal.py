"""A comparison in the terminal: the verdict first, then every metric, then what a reader must know."""

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from enginecore.lab.comparison import ArmComparison, Comparison, MetricComparison
from enginecore.lab.report import text

_WIDE = 96
"""Columns that the table needs; in fewer, every metric has lines of its own."""

_STYLES = {"better": "green", "worse": "red", "equivalent": "cyan", "undecided": "yellow", "refused": "magenta"}


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print it, as a table where the terminal is wide enough for one."""
    console.print(Text(comparison.sentence, style="bold"))
    console.print(Text(_facts(comparison), style="dim"))
    for arm in comparison.comparisons:
        console.print()
        console.print(Text(f"{arm.arm} against {comparison.arms[0].name}"))
        console.print(_table(arm) if console.width >= _WIDE else _lines(arm))
        console.print(Text(arm.primary.reason))
    for warning in comparison.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"))


def _facts(comparison: Comparison) -> str:
    time = "simulated time" if comparison.virtual else "real time"
    facts = [f"{comparison.name}: {comparison.replicates} pairs", f"{comparison.loop} loop", time]
    if comparison.comparisons:
        floor = text.quantity(comparison.noise_floor, comparison.comparisons[0].primary.unit)
        facts.append(f"A/A noise floor {floor}")
    return ", ".join([*facts, f"seed {comparison.seed}"])


def _table(arm: ArmComparison) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("metric", overflow="fold")
    for heading in ("baseline", "candidate", "difference", "interval", "margin", "p"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict")
    for metric in (arm.primary, *arm.secondary):
        cells = (
            text.quantity(text.mean(metric.baseline), metric.unit),
            text.quantity(text.mean(metric.candidate), metric.unit),
            text.difference(metric),
            text.interval(metric),
            text.margin(metric),
            text.p_value(metric),
        )
        table.add_row(_name(metric), *map(Text, cells), _verdict(metric), style=_emphasis(metric, arm))
    return table


def _lines(arm: ArmComparison) -> RenderableType:
    blocks: list[RenderableType] = []
    for metric in (arm.primary, *arm.secondary):
        before, after = (
            text.quantity(text.mean(values), metric.unit) for values in (metric.baseline, metric.candidate)
        )
        head = Text.assemble(_name(metric), ": ", _verdict(metric), style=_emphasis(metric, arm))
        interval = f"interval {text.interval(metric)}, margin {text.margin(metric)}, p {text.p_value(metric)}"
        blocks += [head, Padding(Text(f"{before} to {after}, {text.difference(metric)}\n{interval}"), (0, 0, 0, 2))]
    return Group(*blocks)


def _name(metric: MetricComparison) -> Text:
    return Text.assemble(metric.metric, (f" ({metric.direction})", "dim"))


def _verdict(metric: MetricComparison) -> Text:
    return Text(metric.verdict, style=_STYLES[metric.verdict])


def _emphasis(metric: MetricComparison, arm: ArmComparison) -> str:
    return "bold" if metric is arm.primary else ""
