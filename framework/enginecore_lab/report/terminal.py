"""A comparison in the terminal: the verdict first, then every metric, then what a reader must know."""

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from enginecore_lab.comparison import ArmComparison, Comparison, MetricComparison
from enginecore_lab.report import text

_STYLES = {"better": "green", "worse": "red", "equivalent": "cyan", "undecided": "yellow", "refused": "magenta"}


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print it, as a table where the terminal is wide enough for one: else every metric has lines of its own."""
    console.print(Text(comparison.sentence, style="bold"))
    console.print(Text(_facts(comparison), style="dim"))
    for arm in comparison.comparisons:
        console.print()
        console.print(Text(f"{arm.arm} against {comparison.arms[0].name}"))
        table = _table(arm)
        needed = console.measure(table, options=console.options.update(max_width=1000)).maximum
        console.print(table if needed <= console.width else _lines(arm))
        console.print(Text(f"{arm.primary.metric}: {arm.primary.reason}"))
    for warning in comparison.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"))


def _facts(comparison: Comparison) -> str:
    time = "simulated time" if comparison.virtual else "real time"
    facts = [f"{comparison.name}: {text.pairs(comparison.replicates)}", f"{comparison.loop} loop", time]
    if comparison.comparisons:
        floor = text.quantity(comparison.noise_floor, comparison.comparisons[0].primary.unit)
        facts.append(f"A/A noise floor {floor}")
    return ", ".join([*facts, f"seed {comparison.seed}"])


def _table(arm: ArmComparison) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("metric", no_wrap=True)
    for heading in ("baseline", "candidate", "difference", _interval(arm.primary), "p"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict")
    for metric in (arm.primary, *arm.secondary):
        cells = (
            text.quantity(text.mean(metric.baseline), metric.unit),
            text.quantity(text.mean(metric.candidate), metric.unit),
            text.difference(metric),
            text.interval(metric),
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
        interval = (
            f"{_interval(metric)} {text.interval(metric)}, margin {text.margin(metric)}, p {text.p_value(metric)}"
        )
        lines = (f"{before} to {after}, {text.difference(metric)}", interval)
        blocks += [
            head,
            *(Padding(Text(line), (0, 0, 0, 2), expand=False) for line in lines),
        ]  # no blanks at their ends
    return Group(*blocks)


def _interval(metric: MetricComparison) -> str:
    return "interval" if metric.interval is None else f"{text.level(metric.interval)} interval"


def _name(metric: MetricComparison) -> Text:
    return Text.assemble(metric.metric, (f" ({metric.direction})", "dim"))


def _verdict(metric: MetricComparison) -> Text:
    return Text(metric.verdict, style=_STYLES[metric.verdict])


def _emphasis(metric: MetricComparison, arm: ArmComparison) -> str:
    return "bold" if metric is arm.primary else ""
