"""Service of tenants, as the virtual token counter counts it (Sheng et al., OSDI 2024).

A prompt counts when its first token is scheduled, whether cached or not, an output token when it is emitted. What is
computed again counts nothing. A tenant is backlogged while a request of its waits to be scheduled for the first time.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt

from enginecore_lab.interfaces import MeasuredRequest, MeasuredRun, MetricRefused, Slo

PROMPT_WEIGHT = 1.0
OUTPUT_WEIGHT = 2.0

Spans = list[tuple[float, float]]


class Service:
    """One tenant's.

    Attributes:
        spans: When it was backlogged: apart from one another, in order.
    """

    def __init__(self, requests: Sequence[MeasuredRequest], end: float) -> None:
        self.spans = _union([_waiting(each, end) for each in requests])
        scheduled = [each for each in requests if each.first_scheduled is not None]
        prompts = [each.request.num_prompt_tokens * PROMPT_WEIGHT for each in scheduled]
        tokens = [np.frombuffer(each.token_times, dtype=np.float64) for each in requests if each.token_times]
        times = np.concatenate([np.array([each.first_scheduled for each in scheduled], dtype=np.float64), *tokens])
        amounts = np.full(len(times), OUTPUT_WEIGHT)
        amounts[: len(prompts)] = prompts
        order = np.argsort(times, kind="stable")
        self._times = times[order]
        self._total = np.concatenate(([0.0], np.cumsum(amounts[order])))

    def by(self, times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Served up to each of these times, and at it."""
        return self._total[np.searchsorted(self._times, times, side="right")]

    def before(self, time: float) -> float:
        """Served before this time."""
        return float(self._total[np.searchsorted(self._times, time, side="left")])

    def times_within(self, start: float, end: float) -> npt.NDArray[np.float64]:
        """When it was served, from `start` on and before `end`."""
        low, high = np.searchsorted(self._times, [start, end])
        return self._times[low:high]


def services_of(run: MeasuredRun) -> dict[str, Service]:
    """Service by tenant.

    Raises:
        MetricRefused: there is one tenant.
    """
    by_tenant: dict[str, list[MeasuredRequest]] = defaultdict(list)
    for each in run.all_requests:
        by_tenant[each.request.tenant].append(each)
    if len(by_tenant) < 2:
        raise MetricRefused(f"fairness is between tenants, and all requests are of {next(iter(by_tenant))!r}")
    end = run.steps.settled[-1] if run.steps.settled else 0.0
    return {tenant: Service(of, end) for tenant, of in by_tenant.items()}


def service_difference(run: MeasuredRun, slo: Slo) -> float:
    """Largest service difference of backlogged tenants.

    In weighted tokens (prompt 1, output 2), over any time during which both tenants were
    backlogged; 0 if no two ever were at once.
    """
    pairs = combinations(services_of(run).values(), 2)
    return max(_difference(a, b, span) for a, b in pairs for span in [(0.0, 0.0), *_common(a.spans, b.spans)])


def jain_service(run: MeasuredRun, slo: Slo) -> float:
    """Jain's index of the service of backlogged tenants.

    Of what each tenant got per second while it and another one were backlogged. 1: all alike; 1/n:
    one of n had everything. Tokens are weighted as in `service_difference`.

    Raises:
        MetricRefused: no two ever were.
    """
    services = list(services_of(run).values())
    contended = _contended([each.spans for each in services])
    rates: list[float] = []
    for each in services:
        spans = _common(each.spans, contended)
        if seconds := sum(end - start for start, end in spans):
            rates.append(sum(each.before(end) - each.before(start) for start, end in spans) / seconds)
    if not any(rates):
        raise MetricRefused("no two tenants were ever backlogged at once, so none had to share")
    return sum(rates) ** 2 / (len(rates) * sum(rate**2 for rate in rates))


def _difference(a: Service, b: Service, span: tuple[float, float]) -> float:
    start, end = span
    times = np.concatenate((a.times_within(start, end), b.times_within(start, end)))
    ahead = np.append(a.by(times) - b.by(times), a.before(start) - b.before(start))
    return float(ahead.max() - ahead.min())


def _waiting(run: MeasuredRequest, end: float) -> tuple[float, float]:
    """Until it was scheduled, or ended without that, or the run was over."""
    return run.arrival, min(time for time in (run.first_scheduled, run.ended, end) if time is not None)


def _union(spans: Spans) -> Spans:
    merged: Spans = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def _common(a: Spans, b: Spans) -> Spans:
    """Where both are."""
    common: Spans = []
    i = j = 0
    while i < len(a) and j < len(b):
        start, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if start < end:
            common.append((start, end))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return common


def _contended(all_spans: list[Spans]) -> Spans:
    """Where at least two are."""
    changes: dict[float, int] = defaultdict(int)
    for start, end in (span for spans in all_spans for span in spans):
        changes[start] += 1
        changes[end] -= 1
    backlogged = 0
    contended: Spans = []
    for time, until in pairwise(sorted(changes)):
        backlogged += changes[time]
        if backlogged > 1:
            contended.append((time, until))
    return contended
