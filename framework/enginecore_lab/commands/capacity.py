"""`enginecore capacity`: how many requests per second each configuration serves in time."""

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from enginecore.cli.options import AsJson
from enginecore_lab.capacity import Capacity, find_capacity
from enginecore_lab.commands.experiments import ExperimentFile, ExperimentOverrides
from enginecore_lab.commands.progress import progress_bar
from enginecore_lab.experiment_file import load_experiment, parse_overrides
from enginecore_lab.result import to_json


def capacity(
    experiment: ExperimentFile,
    overrides: ExperimentOverrides = None,
    target: Annotated[float, typer.Option(help="Share of requests that must meet the experiment's slo.")] = 0.9,
    tolerance: Annotated[float, typer.Option(help="How closely to look, as a share of the rate.")] = 0.02,
    as_json: AsJson = False,
) -> None:
    """Find the highest rate at which each arm of an experiment still serves enough requests in time."""
    asked = load_experiment(experiment, parse_overrides(overrides or ()))
    with progress_bar("Rates") as progress:
        found = find_capacity(asked, target=target, tolerance=tolerance, progress=progress)
    if as_json:
        typer.echo(to_json(found), nl=False)
        return
    _print(found, target)


def _print(found: list[Capacity], target: float) -> None:
    table = Table(title=f"Highest rate with {target:.0%} of all requests in time")
    table.add_column("arm", overflow="fold")
    for heading in ("requests/s", "in time", "against the first", "rates tried"):
        table.add_column(heading, justify="right")
    for each in found:
        share = f"{each.rate / found[0].rate - 1:+.1%}"
        table.add_row(escape(each.arm), f"{each.rate:.3g}", f"{each.attainment:.1%}", share, str(len(each.points)))
    console = Console()
    console.print(table)
    for each in found:
        if not each.is_monotone:
            tried = ", ".join(f"{point.rate:.3g}/s: {point.attainment:.1%}" for point in each.points)
            console.print(escape(f"warning: {each.arm} has no one capacity, for a higher rate did better: {tried}"))
