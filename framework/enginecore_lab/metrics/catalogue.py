"""The lab's own metrics as components."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from enginecore.plugin import Component
from enginecore_lab.interfaces import Direction, MeasuredRequest, MeasuredRun, Metric, Slo
from enginecore_lab.metrics import samples, service, summaries, totals
from enginecore_lab.metrics.samples import TakeSamples
from enginecore_lab.metrics.summaries import Summarize

OfRequests = Callable[[Sequence[MeasuredRequest], Slo], float]
OfRun = Callable[[MeasuredRun, Slo], float]

_SUMMARIES: tuple[tuple[str, str, Summarize], ...] = (
    ("mean", "mean", summaries.mean),
    ("p50", "median", partial(summaries.percentile, 50)),
    ("p95", "95th percentile", partial(summaries.percentile, 95)),
    ("p99", "99th percentile", partial(summaries.percentile, 99)),
    ("max", "largest", summaries.largest),
)

_LATENCIES: tuple[tuple[str, TakeSamples], ...] = (
    ("ttft", samples.ttft),
    ("itl", samples.itl),
    ("tpot", samples.tpot),
    ("e2e", samples.e2e),
    ("queue_delay", samples.queue_delay),
    ("max_itl", samples.max_itl),
    ("normalized_latency", samples.normalized_latency),
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

_MADE_OF_LATENCIES = ("slo_attainment", "fluidity_index", "good_rps")
"""Shares and rates that follow the queue though their unit is no second."""


@dataclass(frozen=True, kw_only=True)
class _OwnMetric(Metric):
    unit: str = ""
    direction: Direction = "lower"
    is_of_run: bool = False
    needs_alone: bool = False
    grows_with_queue: bool = False

    @property
    def follows_queue(self) -> bool:
        return self.grows_with_queue


@dataclass(frozen=True, kw_only=True)
class LatencyMetric(_OwnMetric):
    """A mean, a quantile or the largest of latencies, one per request or per gap between tokens."""

    take: TakeSamples
    summarize: Summarize

    def compute(self, run: MeasuredRun, /) -> float:
        return self.summarize(self.take(run.requests, run.alone))


@dataclass(frozen=True, kw_only=True)
class RequestsMetric(_OwnMetric):
    """A share or a count over the requests that count."""

    function: OfRequests

    def compute(self, run: MeasuredRun, /) -> float:
        return self.function(run.requests, run.slo)


@dataclass(frozen=True, kw_only=True)
class WholeRunMetric(_OwnMetric):
    """A figure of the whole run: work per time cannot be cut by requests."""

    function: OfRun
    is_of_run: bool = True

    def compute(self, run: MeasuredRun, /) -> float:
        return self.function(run, run.slo)


def metric_components() -> Iterator[Component]:
    """All components of the kind metric: a latency's name is followed by `_mean`, `_p50`, `_p95`,
    `_p99` or `_max`.
    """
    for name, take in _LATENCIES:
        yield from _latencies(name, take, unit="s")
    yield from _latencies("slowdown", samples.slowdown, unit="", needs_alone=True)
    for name, direction, of_requests in _OF_REQUESTS:
        grows = name in _MADE_OF_LATENCIES
        metric = RequestsMetric(direction=direction, function=of_requests, grows_with_queue=grows)
        yield _component(name, _first_line(of_requests), metric)
    for name, unit, direction, of_run in _OF_RUN:
        grows = name in _MADE_OF_LATENCIES
        whole = WholeRunMetric(unit=unit, direction=direction, function=of_run, grows_with_queue=grows)
        yield _component(name, _first_line(of_run), whole)


def _latencies(name: str, take: TakeSamples, **facts: Any) -> Iterator[Component]:
    for suffix, word, summarize in _SUMMARIES:
        metric = LatencyMetric(take=take, summarize=summarize, grows_with_queue=True, **facts)
        yield _component(f"{name}_{suffix}", f"{_first_line(take).removesuffix('.')}: {word}.", metric)


def _component(name: str, summary: str, metric: Metric) -> Component:
    return Component(kind="metric", name=name, factory=partial(_offer, metric), summary=summary)


def _offer(metric: Metric, settings: object, context: object) -> Metric:
    return metric


def _first_line(function: Callable[..., object]) -> str:
    return (inspect.getdoc(function) or "").partition("\n")[0]
