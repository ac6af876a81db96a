"""`enginecore ab`: compare configurations on the same workloads."""

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from enginecore.cli.options import AsJson
from enginecore_lab.commands.experiments import ExperimentFile, ExperimentOverrides, Jobs
from enginecore_lab.commands.folders import make_writable
from enginecore_lab.commands.progress import progress_bar
from enginecore_lab.comparing import compare
from enginecore_lab.experiment_file import load_experiment, parse_overrides
from enginecore_lab.report import print_comparison, require_plots, write_html
from enginecore_lab.result import to_json


def ab(
    experiment: ExperimentFile,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for result.json and report.html. Unset: EXPERIMENT's name.", show_default=False),
    ] = None,
    overrides: ExperimentOverrides = None,
    jobs: Jobs = 1,
    as_json: AsJson = False,
) -> None:
    """Run the arms of an experiment on the same workloads, and say which is better."""
    asked = load_experiment(experiment, parse_overrides(overrides or ()))
    folder = out if out is not None else Path(f"{experiment.stem}-result")
    make_writable(folder)  # before hours of runs, not after them
    require_plots()
    command = shlex.join(["enginecore", "ab", str(experiment), *(f"--set={text}" for text in overrides or ())])
    with progress_bar("Runs") as progress:
        outcome = compare(asked, progress=progress, jobs=jobs, command=command)
    result = to_json(outcome.comparison)
    (folder / "result.json").write_text(result, encoding="utf-8")
    write_html(outcome.comparison, outcome.runs, folder / "report.html")
    if as_json:
        typer.echo(result, nl=False)
        return
    print_comparison(outcome.comparison, Console())
    typer.echo(f"\n{folder / 'report.html'} shows more; {folder / 'result.json'} holds all figures.")
