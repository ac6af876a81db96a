"""`enginecore sweep`: how each configuration changes as requests come faster."""

from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from enginecore.cli.options import AsJson
from enginecore.errors import ConfigurationError
from enginecore_lab import text
from enginecore_lab.arms import load_arms
from enginecore_lab.choices import MetricChoice, find_metric
from enginecore_lab.commands.experiments import ExperimentFile, ExperimentOverrides, Jobs
from enginecore_lab.commands.progress import progress_bar
from enginecore_lab.experiment import Experiment
from enginecore_lab.experiment_file import load_experiment, parse_overrides
from enginecore_lab.pool import PoolKind
from enginecore_lab.result import to_json
from enginecore_lab.sweep import Cell, run_sweep

_SHOWN = ("ttft_mean", "itl_p99", "e2e_mean", "slo_attainment")


def sweep(
    experiment: ExperimentFile,
    rates: Annotated[str, typer.Option(help="Multiples of the workload's own rate.")] = "0.5,0.75,1,1.25,1.5",
    metrics: Annotated[
        str | None, typer.Option(help="Metrics to show besides the primary one. Unset: a few.", show_default=False)
    ] = None,
    overrides: ExperimentOverrides = None,
    jobs: Jobs = 1,
    pool: Annotated[PoolKind, typer.Option(help="Where runs go; ray must be installed.")] = "processes",
    as_json: AsJson = False,
) -> None:
    """Run every arm of an experiment at several rates."""
    asked = load_experiment(experiment, parse_overrides(overrides or ()))
    shown = metrics.split(",") if metrics else list(_SHOWN)
    columns = _find_metrics(list(dict.fromkeys((asked.primary.metric.name, *shown))), asked)
    with progress_bar("Runs") as progress:
        cells = run_sweep(asked, _numbers(rates), jobs=jobs, pool=pool, progress=progress)
    if as_json:
        typer.echo(to_json(cells), nl=False)
        return
    _print(cells, columns)


def _find_metrics(names: list[str], asked: Experiment) -> list[MetricChoice]:
    """The metrics of these names, among those that the plugins of the arms offer.

    Raises:
        ConfigurationError: there is no such metric; names those that are close.
    """
    registry = load_arms(asked)[0].registry
    try:
        return [find_metric(name, registry) for name in names]
    except ValueError as error:
        raise ConfigurationError(f"--metrics: {error}") from None


def _numbers(text: str) -> list[float]:
    """The numbers of a list with commas.

    Raises:
        ConfigurationError: a part is no number.
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigurationError(f"--rates {text!r}: write numbers with commas, such as 0.5,1,1.5 ({error})") from None


def _print(cells: list[Cell], metrics: list[MetricChoice]) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("arm", overflow="fold")
    for heading in ("rate", "per s", *(metric.name for metric in metrics)):
        table.add_column(heading.replace("_", " "), justify="right")
    table.add_column("queue grew", justify="right")
    for cell in cells:
        figures = [_figure(cell, metric) for metric in metrics]
        saturated = f"{cell.saturated}" if cell.saturated else ""
        table.add_row(escape(cell.arm), f"{cell.factor:g} x", f"{cell.rate:.3g}", *figures, saturated)
    if any(cell.saturated for cell in cells):
        table.caption = "queue grew: in so many replicates it only grew, and latencies say how long the run was"
    Console().print(table)


def _figure(cell: Cell, metric: MetricChoice) -> str:
    values = cell.metrics.get(metric.name)
    return text.quantity(text.mean(values), metric.unit) if values else "-"
