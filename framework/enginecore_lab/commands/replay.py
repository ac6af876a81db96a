"""`enginecore replay`: run one workload on one configuration."""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer
from rich.console import Console

from enginecore.cli.options import AsJson, ConfigFile, Overrides
from enginecore_lab.choices import all_metrics
from enginecore_lab.commands.progress import progress_bar
from enginecore_lab.commands.replay_source import ReplayOptions, ReplayPlan, plan_replay
from enginecore_lab.commands.replay_tables import print_run
from enginecore_lab.measurement import compute_metrics
from enginecore_lab.metrics import Alone, is_saturated
from enginecore_lab.replay import replay as run_replay
from enginecore_lab.replay import time_alone
from enginecore_lab.result import to_json
from enginecore_lab.run import Run
from enginecore_lab.workloads import workload_hash

ExperimentFile = Annotated[
    Path | None, typer.Argument(metavar="EXPERIMENT", help="File of an experiment.", show_default=False)
]
Arm = Annotated[str | None, typer.Option(help="Name of the arm. Unset: the first.", show_default=False)]
Workload = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="One key of a workload, such as kind=azure. May be repeated."),
]
Clock = Annotated[
    Literal["virtual", "real"] | None,
    typer.Option(help="Unset: as the experiment says, or virtual.", show_default=False),
]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed of the workload.", show_default=False)]
Replicate = Annotated[int, typer.Option(min=0, help="Which replicate of the workload.")]
Terms = Annotated[
    list[str] | None,
    typer.Option("--slo", metavar="KEY=SECONDS", help="ttft, tpot or e2e of a good request. May be repeated."),
]
SkipFirst = Annotated[
    int | None, typer.Option(min=0, help="Requests at the beginning that do not count.", show_default=False)
]
SkipLast = Annotated[int | None, typer.Option(min=0, help="Likewise at the end.", show_default=False)]
RevealLengths = Annotated[bool, typer.Option("--reveal-lengths", help="Policies may know how long outputs will be.")]
ShowAlone = Annotated[bool, typer.Option("--alone", help="Also run each request alone, and show slowdowns.")]


def replay(
    experiment: ExperimentFile = None,
    arm: Arm = None,
    workload: Workload = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    clock: Clock = None,
    seed: Seed = None,
    replicate: Replicate = 0,
    slo: Terms = None,
    skip_first: SkipFirst = None,
    skip_last: SkipLast = None,
    reveal_lengths: RevealLengths = False,
    alone: ShowAlone = False,
    as_json: AsJson = False,
) -> None:
    """Run a workload on one configuration and show all metrics. Time is simulated unless --clock is
    real.

    Either one arm of an EXPERIMENT, with --workload and --set on top of what it says; or --workload on the engine that
    --config and --set ask for.
    """
    options = ReplayOptions(
        workload=workload or (),
        overrides=overrides or (),
        config=config,
        virtual=None if clock is None else clock == "virtual",
        seed=seed,
        replicate=replicate,
        slo=slo or (),
        skip_first=skip_first,
        skip_last=skip_last,
        reveal_lengths=reveal_lengths,
    )
    asked = plan_replay(experiment, arm, options)
    run = _run(asked)
    alone_time = _time_alone(asked) if alone else None
    metrics = all_metrics(asked.settings.registry)
    values, refused = compute_metrics(run, metrics, asked.slo, asked.window, alone_time)
    if as_json:
        typer.echo(to_json(_plain(run, values, refused)), nl=False)
    else:
        print_run(run, metrics, values, refused, Console())


def _run(asked: ReplayPlan) -> Run:
    with progress_bar("Requests") as progress:
        return run_replay(
            asked.workload,
            asked.settings,
            virtual=asked.virtual,
            reveal_lengths=asked.reveal_lengths,
            on_progress=lambda done: progress(done, len(asked.workload.requests)),
        )


def _time_alone(asked: ReplayPlan) -> Alone:
    with progress_bar("Alone") as progress:
        return time_alone(asked.workload, asked.settings, virtual=asked.virtual, on_progress=progress)


def _plain(run: Run, values: dict[str, float], refused: dict[str, str]) -> dict[str, Any]:
    return {
        "workload": run.workload.name,
        "workload_hash": workload_hash(run.workload),
        "loop": run.workload.loop,
        "num_requests": len(run.requests),
        "virtual": run.virtual,
        "num_steps": len(run.steps.step),
        "wall_seconds": run.wall_seconds,
        "saturated": is_saturated(run),
        "metrics": values,
        "refused": refused,
        "info": msgspec.structs.asdict(run.info),
        "settings": run.settings,
    }
