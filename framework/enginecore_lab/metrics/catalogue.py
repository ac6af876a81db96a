"""All metrics, by name."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from enginecore_lab.comparison import Direction
from enginecore_lab.metrics import samples, service, summaries, totals
from enginecore_lab.metrics.samples import TakeSamples
from enginecore_lab.metrics.summaries import Summarize
from enginecore_lab.metrics.terms import Alone, Compute, Metric, Slo, Window
from enginecore_lab.run import RequestRun, Run

OfRequests = Callable[[Sequence[RequestRun], Slo], float]
OfRun = Callable[[Run, Slo], float]

_SUMMARIES: tuple[tuple[str, str, Summarize], ...] = (
    ("mean", "Mean", summaries.mean),
    ("p50", "Median", summaries.percentile(50)),
    ("p95", "95th percentile", summaries.percentile(95)),
    ("p99", "99th percentile", summaries.percentile(99)),
    ("max", "Largest", summaries.largest),
)

_LATENCIES: tuple[tuple[str, str, TakeSamples], ...] = (
    ("ttft", "s", samples.ttft),
    ("itl", "s", samples.itl),
    ("tpot", "s", samples.tpot),
    ("e2e", "s", samples.e2e),
    ("queue_delay", "s", samples.queue_delay),
    ("max_itl", "s", samples.max_itl),
    ("normalized_latency", "s", samples.normalized_latency),
    ("slowdown", "", samples.slowdown),
)

_OF_REQUESTS: tuple[tuple[str, Direction, OfRequests], ...] = (
    ("slo_attainment", "higher", totals.slo_attainment),
    ("fluidity_index", "higher", totals.fluidity_index),
    ("cache_hit_share", "higher", totals.cache_hit_share),
    ("cache_hit_share_mean", "higher", totals.cache_hit_share_mean),
    ("preemptions_per_request", "lower", totals.preemptions_per_request),
    ("preempted_share", "lower", totals.preempted_share),
    ("recomputed_share", "lower", totals.recomputed_share),
    ("failed_share", "lower", totals.failed_share),
    ("wrong_length_share", "lower", totals.wrong_length_share),
)

_OF_RUN: tuple[tuple[str, str, Direction, OfRun], ...] = (
    ("good_rps", "1/s", "higher", totals.good_rps),
    ("requests_per_s", "1/s", "higher", totals.requests_per_second),
    ("output_tokens_per_s", "1/s", "higher", totals.output_tokens_per_second),
    ("makespan", "s", "lower", totals.makespan),
    ("service_difference", "", "lower", service.service_difference),
    ("jain_service", "", "higher", service.jain_service),
)


def _summarized(take: TakeSamples, summarize: Summarize) -> Compute:
    def compute(run: Run, window: Window, slo: Slo, alone: Alone | None = None) -> float:
        return summarize(take(window.of(run), alone))

    return compute


def _of_requests(function: OfRequests) -> Compute:
    def compute(run: Run, window: Window, slo: Slo, alone: Alone | None = None) -> float:
        return function(window.of(run), slo)

    return compute


def _of_run(function: OfRun) -> Compute:
    def compute(run: Run, window: Window, slo: Slo, alone: Alone | None = None) -> float:
        return function(run, slo)

    return compute


def _first_line(function: Callable[..., object]) -> str:
    return (inspect.getdoc(function) or "").partition("\n")[0]


def _all() -> Iterator[Metric]:
    for name, unit, take in _LATENCIES:
        for suffix, word, summarize in _SUMMARIES:
            summary = f"{word}: {_first_line(take)}"
            yield Metric(f"{name}_{suffix}", unit, "lower", summary, _summarized(take, summarize))
    for name, direction, of_requests in _OF_REQUESTS:
        yield Metric(name, "", direction, _first_line(of_requests), _of_requests(of_requests))
    for name, unit, direction, of_run in _OF_RUN:
        summary = f"{_first_line(of_run)} Of the whole run."
        yield Metric(name, unit, direction, summary, _of_run(of_run), is_of_run=True)


METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _all()})
"""By name: a latency's is followed by `_mean`, `_p50`, `_p95`, `_p99` or `_max`."""
