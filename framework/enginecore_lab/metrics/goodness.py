"""Goodness: which requests met their terms, and which tokens came in time."""

from collections.abc import Sequence

import numpy as np

from enginecore_lab.interfaces import MeasuredRequest, MetricRefused, Slo
from enginecore_lab.metrics.samples import mean_gap


def num_good(requests: Sequence[MeasuredRequest], slo: Slo) -> int:
    """How many requests met all of their terms. One that is not complete did not.

    Raises:
        MetricRefused: a request has no terms.
    """
    return sum(_is_good(each, slo.of(each.request)) for each in requests)


def share_in_time(run: MeasuredRequest, slo: Slo) -> float:
    """The share of a request's tokens that came in time. Tokens that never came were late.

    The first is due `ttft` after arrival, each later one `tpot` after the one before was due or, if that one was late,
    after it came: an early token gives slack to later ones.

    Raises:
        MetricRefused: its terms do not say when tokens are due.
    """
    terms = slo.of(run.request)
    if terms.ttft is None or terms.tpot is None:
        raise MetricRefused(f"the fluidity index needs slo.ttft and slo.tpot, got {terms}")
    times = np.frombuffer(run.token_times, dtype=np.float64)
    if not len(times):
        return 0.0
    steady = terms.tpot * np.arange(len(times))
    # due[i] = max(due[i-1], times[i-1]) + tpot, without the loop
    base = np.concatenate(([run.arrival + terms.ttft], (times - steady)[:-1]))
    due = np.maximum.accumulate(base) + steady
    return int(np.count_nonzero(times <= due)) / max(len(times), run.request.num_output_tokens)


def _is_good(run: MeasuredRequest, terms: Slo) -> bool:
    if not run.is_complete:
        return False
    times = run.token_times
    reached = (terms.ttft, times[0] - run.arrival), (terms.tpot, mean_gap(run)), (terms.e2e, times[-1] - run.arrival)
    return all(limit is None or value <= limit for limit, value in reached)
