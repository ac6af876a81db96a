"""`enginecore calibrate`: what steps of a real executor cost, as a file for simulated ones."""

from pathlib import Path
from statistics import fmean, median
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from enginecore.cli.options import ConfigFile, Overrides
from enginecore.clock import RealClock
from enginecore.messages import EngineInfo
from enginecore.settings import Loaded, load_settings, parse_overrides
from enginecore_lab.calibration import Calibration
from enginecore_lab.calibration import calibrate as run_calibration
from enginecore_lab.commands.folders import make_writable
from enginecore_lab.commands.progress import progress_bar
from enginecore_lab.metrics import Window
from enginecore_lab.prediction import at_load, capacity, prediction_errors, simulated_settings
from enginecore_lab.prediction import predict as run_prediction
from enginecore_lab.workloads import WorkloadChoice, read_workload
from enginecore_simulation.files import write_costs
from enginecore_simulation.samples import write_samples

LOADS = (0.3, 0.6, 0.9)
"""Shares of the rate that the engine can serve."""


def calibrate(
    file: Annotated[Path, typer.Argument(help="Where the costs go, as TOML; executor.simulated.costs reads it.")],
    seconds: Annotated[float, typer.Option(min=1.0, help="How long to measure.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Seed of the requests, and of the steps held out.")] = 0,
    steps: Annotated[
        Path | None, typer.Option(help="Also write every step, as a CSV table.", show_default=False)
    ] = None,
    predict: Annotated[
        int, typer.Option(min=0, metavar="N", help="Then predict runs of N requests at three loads, and run them.")
    ] = 0,
    config: ConfigFile = None,
    overrides: Overrides = None,
) -> None:
    """Measure the steps of the engine that the settings ask for, and fit what they cost."""
    loaded = load_settings(parse_overrides(overrides or ()), config_file=config)
    for written in (file, steps or file):
        make_writable(written.parent)
    with progress_bar("Measuring, %") as progress:
        found = run_calibration(
            loaded, RealClock(), seconds=seconds, seed=seed, progress=lambda share: progress(round(100 * share), 100)
        )
    info = found.info
    measured = {"model": info.model, "executor": info.components["executor"], "dtype": info.dtype}
    write_costs(file, found.fit, {**measured, "device": info.device, "seconds": f"{seconds:g}"})
    if steps is not None:
        write_samples(steps, found.samples)
    _print(found)
    if predict:
        _predict(loaded, found.info, file, predict, seed)


def _print(found: Calibration) -> None:
    table = Table(title="Predicted step times against steps held out")
    for heading in ("steps that", "fitted", "held out", "mean error", "95 % within", "bias"):
        table.add_column(heading, justify="left" if heading == "steps that" else "right")
    names = {"decode": "only decode", "mixed": "work on prompts"}
    for regime, errors in found.fit.errors.items():
        shares = (f"{errors.mape:.1%}", f"{errors.p95_ape:.1%}", f"{errors.bias:+.1%}")
        table.add_row(names[regime], str(errors.num_fitted), str(errors.num_held_out), *shares)
    Console().print(table)
    if found.gaps:
        mean, middle, most = fmean(found.gaps), median(found.gaps), max(found.gaps)
        typer.echo(f"Between steps: mean {mean * 1e3:.2f} ms, median {middle * 1e3:.2f} ms, most {most * 1e3:.2f} ms")


def _predict(loaded: Loaded, info: EngineInfo, costs: Path, num_requests: int, seed: int) -> None:
    """Simulated runs against real ones, at shares of what the engine can serve."""
    settings = loaded.settings.model_dump(mode="json")
    workload = _poisson(num_requests, min(info.max_model_len, info.max_num_batched_tokens)).make(seed, 0)
    most = capacity(workload, simulated_settings(settings, info, costs))
    for load in LOADS:
        real, simulated = run_prediction(at_load(workload, load, most), settings, costs)
        table = Table(title=f"{num_requests} requests at {load * most:.2f}/s, load {load:g}")
        for heading in ("", "real", "95 % of it within", "simulated", "error"):
            table.add_column(heading, justify="right" if heading else "left")
        for each in prediction_errors(real, simulated, window=Window(skip_first=num_requests // 10), seed=seed):
            figures = (f"{each.real:.3f} s", f"{each.low:.3f} to {each.high:.3f}", f"{each.simulated:.3f} s")
            table.add_row(each.metric, *figures, f"{each.error:+.1%}")
        Console().print(table)


def _poisson(num_requests: int, longest: int) -> WorkloadChoice:
    """Short chats, independent of one another."""
    return read_workload(
        {
            "kind": "synthetic",
            "num_requests": num_requests,
            "arrivals": {"kind": "poisson", "rate": 1.0},
            "prompt": {"kind": "uniform", "low": 8, "high": max(min(192, longest // 2), 8)},
            "output": {"kind": "uniform", "low": 4, "high": max(min(64, longest // 4), 4)},
        }
    )
