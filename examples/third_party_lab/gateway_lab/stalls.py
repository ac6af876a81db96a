"""The share of requests that stalled."""

from itertools import pairwise

from enginecore_lab.interfaces import MeasuredRequest, MeasuredRun, Metric

NOTICED = 0.2
"""Seconds between two tokens that a reader notices."""


class StalledShare(Metric):
    """The share of requests with a gap between two tokens that a reader notices."""

    def compute(self, run: MeasuredRun, /) -> float:
        return sum(map(_stalled, run.requests)) / len(run.requests)


def _stalled(each: MeasuredRequest) -> bool:
    if not each.is_complete:
        return True  # a request that failed is never left out
    return any(later - earlier > NOTICED for earlier, later in pairwise(each.token_times))
