"""Tables of one run's metrics."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from enginecore_lab.choices import MetricChoice
from enginecore_lab.metrics import load_of
from enginecore_lab.run import Run

Known = Mapping[str, MetricChoice]
"""All metrics, by name."""

SUMMARIES = ("mean", "p50", "p95", "p99", "max")


def print_run(
    run: Run,
    metrics: Sequence[MetricChoice],
    values: Mapping[str, float],
    refused: Mapping[str, str],
    console: Console,
) -> None:
    """Print the run, its latencies and totals, and what must be known before believing them.

    Args:
        run: The run.
        metrics: All metrics, in the order in which they are shown.
        values: Values by metric.
        refused: Metrics without a value, and why.
        console: Where to.
    """
    known = {metric.name: metric for metric in metrics}
    print_header(run, console)
    console.print(_latencies(known, values, refused))
    console.print(_totals(known, values))
    for warning in _warnings(run, values, refused):
        console.print(f"[yellow]warning:[/] {escape(warning)}")


def print_header(run: Run, console: Console) -> None:
    """Print workload, engine and length of the run."""
    workload, info = run.workload, run.info
    loop = f"{workload.loop} loop"
    if workload.loop == "closed":
        loop += f" of {workload.concurrency} clients that think for {workload.think_time:g} s"
    console.print(escape(f"{workload.name}: {len(workload.requests)} requests, {loop}"))
    parts = ", ".join(f"{kind} {name}" for kind, name in info.components.items())
    console.print(escape(f"{info.model} on {info.device}, {info.num_blocks} blocks of {info.block_size}: {parts}"))
    kind = "virtual" if run.virtual else "real"
    tokens = sum(len(each.token_times) for each in run.requests)
    console.print(
        f"{run.steps.settled[-1] if run.steps.settled else 0.0:.1f} s of {kind} time, {len(run.steps.step)} steps, "
        f"{tokens} output tokens, in {run.wall_seconds:.1f} s"
    )


def _latencies(known: Known, values: Mapping[str, float], refused: Mapping[str, str]) -> Table:
    table = Table(title="Latencies")
    table.add_column("")
    for summary in SUMMARIES:
        table.add_column(summary, justify="right")
    names = dict.fromkeys(_base(name) for name in known if _is_latency(name, known))
    for name in names:
        keys = [f"{name}_{summary}" for summary in SUMMARIES]
        if any(key in values for key in keys):
            table.add_row(name, *(_shown(key, known, values) for key in keys))
    if any(_is_latency(name, known) and "samples" in why for name, why in refused.items()):
        table.caption = "-: too few requests for that quantile"
    return table


def _totals(known: Known, values: Mapping[str, float]) -> Table:
    table = Table(title="Totals")
    for heading in ("", "value", "what it is"):
        table.add_column(heading, justify="right" if heading == "value" else "left", overflow="fold")
    for name, metric in known.items():
        if name in values and not _is_latency(name, known):
            table.add_row(name, _shown(name, known, values), escape(metric.summary))
    return table


def _warnings(run: Run, values: Mapping[str, float], refused: Mapping[str, str]) -> list[str]:
    warnings = []
    load = load_of(run)
    if load is not None and load.is_saturated:
        warnings.append(
            f"requests came {load.utilization:.2f} times as fast as they were served ({load.offered:.3g} and "
            f"{load.served:.3g} per second) and the queue only grew: these latencies say how long the run was"
        )
    failed = [each for each in run.requests if not each.is_complete]
    if failed:
        first = failed[0]
        warnings.append(
            f"{len(failed)} requests failed or did not end and count as infinitely late; the first is "
            f"{first.request.request_id!r}: {first.failure}"
        )
    if values.get("wrong_length_share"):
        warnings.append("some outputs are of another length than asked: latencies cannot be paired with another run's")
    return warnings


def _base(name: str) -> str:
    return name.rpartition("_")[0]


def _is_latency(name: str, known: Known) -> bool:
    return name.rpartition("_")[2] in SUMMARIES and f"{_base(name)}_p50" in known


def _shown(name: str, known: Known, values: Mapping[str, float]) -> str:
    if name not in values:
        return "-"
    value, unit = values[name], known[name].unit
    if unit == "s" and value < 1:
        return f"{value * 1000:.1f} ms"
    if unit.startswith("1/"):
        return f"{value:.4g}{unit[1:]}"
    return f"{value:.4g} {unit}".rstrip()
