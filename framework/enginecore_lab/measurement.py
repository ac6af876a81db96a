"""Measurements: the metrics of one run, and the few facts that verdicts need of it."""

from collections.abc import Iterable, Iterator
from dataclasses import fields
from hashlib import sha256
from itertools import pairwise
from typing import Any

import msgspec

from enginecore_lab.choices import MetricChoice
from enginecore_lab.experiment import Experiment
from enginecore_lab.metrics import Alone, MetricRefused, RunView, Slo, Window, is_saturated
from enginecore_lab.run import Run
from enginecore_lab.workload import Loop
from enginecore_lab.workloads.digest import workload_hash

NUM_WINDOWS = 15
"""Windows of one workload. Means of as many contiguous ones were seen to cover as they should."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One arm's run of one replicate, in numbers. Small, so that it goes from process to process.

    Attributes:
        values: Values by metric, in the metrics' units.
        refused: Metrics without a value, and why.
        saturated: Whether the queue only grew.
        num_requests: Requests of the workload.
        num_failed: Requests that failed, were aborted or did not end. They count in all metrics.
        fingerprint: SHA-256 of every moment of the run: two runs with the same one are the same.
        workload_hash: SHA-256 of the workload.
        workload: The workload's name.
        loop: How requests arrived.
        info: The engine's `EngineInfo` as plain values.
        settings: The arm's complete settings, as plain values.
        virtual: Whether time was simulated.
        windows: Values in consecutive windows of the workload, by metric; only with `replicates = 1`.
        first_failure: The first request that failed, and the engine's message; empty: none failed.
        num_wrong_length: Requests that ended with another number of tokens than they asked for: their latencies
            cannot be paired.
    """

    values: dict[str, float]
    refused: dict[str, str]
    saturated: bool
    num_requests: int
    num_failed: int
    fingerprint: str
    workload_hash: str
    workload: str
    loop: Loop
    info: dict[str, Any]
    settings: dict[str, Any]
    virtual: bool
    windows: dict[str, list[float]] = {}
    first_failure: str = ""
    num_wrong_length: int = 0


def measure_run(experiment: Experiment, run: Run, alone: Alone | None) -> Measurement:
    """Measure a run of an experiment; `alone` as in `measure`."""
    return measure(
        run,
        experiment.metrics(),
        experiment.slo.terms(),
        experiment.window.window(),
        alone=alone,
        in_windows=experiment.replicates == 1,
    )


def measure(
    run: Run,
    metrics: Iterable[MetricChoice],
    slo: Slo,
    window: Window,
    *,
    alone: Alone | None = None,
    in_windows: bool = False,
) -> Measurement:
    """Measure a run.

    Args:
        run: A finished run.
        metrics: Metrics to compute, where the run has them.
        slo: Limits that a good request meets.
        window: Choice of the requests that count.
        alone: Seconds that a request takes with an engine to itself; None: no metric needs it.
        in_windows: Also measure consecutive windows of the workload.
    """
    metrics = tuple(metrics)
    values, refused = compute_metrics(run, metrics, slo, window, alone)
    failed = [each for each in run.requests if not each.is_complete]
    return Measurement(
        values=values,
        refused=refused,
        saturated=is_saturated(run),
        num_requests=len(run.requests),
        num_failed=len(failed),
        num_wrong_length=sum(each.has_wrong_length for each in run.requests),
        first_failure=f"{failed[0].request.request_id!r}: {failed[0].failure}" if failed else "",
        fingerprint=_fingerprint(run),
        workload_hash=workload_hash(run.workload),
        workload=run.workload.name,
        loop=run.workload.loop,
        info=msgspec.structs.asdict(run.info),
        settings=dict(run.settings),
        virtual=run.virtual,
        windows=_in_windows(run, metrics, slo, window, alone) if in_windows else {},
    )


def compute_metrics(
    run: Run, metrics: Iterable[MetricChoice], slo: Slo, window: Window, alone: Alone | None
) -> tuple[dict[str, float], dict[str, str]]:
    """Values by metric, and the reason by metric where there is none."""
    view = RunView(run, window, slo, alone)
    values: dict[str, float] = {}
    refused: dict[str, str] = {}
    for metric in metrics:
        try:
            values[metric.name] = metric.compute(view)
        except MetricRefused as refusal:
            refused[metric.name] = str(refusal)
    return values, refused


def _in_windows(
    run: Run, metrics: Iterable[MetricChoice], slo: Slo, window: Window, alone: Alone | None
) -> dict[str, list[float]]:
    """Values in windows, by metric, where every window has one. Metrics of the whole run have no windows."""
    metrics = [metric for metric in metrics if not metric.built.is_of_run]
    found = [compute_metrics(run, metrics, slo, part, alone)[0] for part in _parts(window, len(run.requests))]
    return {
        metric.name: [values[metric.name] for values in found]
        for metric in metrics
        if all(metric.name in values for values in found)
    }


def _parts(window: Window, count: int) -> Iterator[Window]:
    """A window in parts that are equally long but for one request."""
    first = min(window.skip_first, count)
    last = max(count - window.skip_last, first)
    ends = [first + (last - first) * n // NUM_WINDOWS for n in range(NUM_WINDOWS + 1)]
    for start, end in pairwise(ends):
        yield Window(start, count - end)


def _fingerprint(run: Run) -> str:
    digest = sha256()
    for each in run.requests:
        facts = (each.arrival, each.first_scheduled, each.ended, each.num_cached_tokens, each.num_preemptions)
        digest.update(f"{each.request.request_id} {facts} {each.finish_reason}".encode())
        digest.update(each.token_times.tobytes())
    for column in fields(run.steps):
        digest.update(getattr(run.steps, column.name).tobytes())
    return digest.hexdigest()
