"""Options that the commands on experiments share."""

from pathlib import Path
from typing import Annotated

import typer

ExperimentFile = Annotated[
    Path,
    typer.Argument(metavar="EXPERIMENT", help="Experiment file: TOML, YAML or JSON; or a result.json, to repeat it."),
]

ExperimentOverrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="One key of the experiment, such as workload.path=trace.csv. May be repeated.",
    ),
]

Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Processes that share the runs, if time is simulated.")]
