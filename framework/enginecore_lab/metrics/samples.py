"""Latencies of requests and of tokens, from which means and quantiles are taken.

A request that is not complete is infinitely late, whatever it got before: a policy that starves or fails some would
look better otherwise.
"""

from collections.abc import Callable, Sequence
from math import inf

import numpy as np
import numpy.typing as npt

from enginecore_lab.interfaces import Alone, MeasuredRequest, MetricRefused

Samples = npt.NDArray[np.float64]
TakeSamples = Callable[[Sequence[MeasuredRequest], Alone | None], Samples]


def queue_delay(requests: Sequence[MeasuredRequest], alone: Alone | None) -> Samples:
    """Time from arrival to the first step.

    That is the step that first computes a token of the request.
    """
    return _of_each(requests, _wait)


def ttft(requests: Sequence[MeasuredRequest], alone: Alone | None) -> Samples:
    """Time to the first token, from arrival."""
    return _of_each(requests, lambda each: each.token_times[0] - each.arrival)


def e2e(requests: Sequence[MeasuredRequest], alone: Alone | None) -> Samples:
    """Time to the last token, from arrival."""
    return _of_each(requests, _latency)


def normalized_latency(requests: Sequence[MeasuredRequest], alone: Alone | None) -> Samples:
    """E2E latency per output token."""
    return _of_each(requests, lambda each: _latency(each) / len(each.token_times))


def slowdown(requests: Sequence[MeasuredRequest], alone: Alone | None) -> Samples:
    """E2E latency relative to an idle engine.

    That is over the latency of the request alone on the engine.
    """
    if alone is None:
        raise MetricRefused("slowdown needs to know how long each request takes alone, and nothing says so")
    return _of_each(requests, lambda each: _latency(each) / alone(each.request))


def tpot(requests: Sequence[MeasuredRequest], alone: Alone | None) -> Samples:
    """Time per output token after the first.

    By counts of tokens; requests of one token have none.
    """
    several = [
        each for each in requests if (len(each.token_times) if each.is_complete else each.request.num_output_tokens) > 1
    ]
    return _of_each(several, mean_gap)


def max_itl(requests: Sequence[MeasuredRequest], alone: Alone | None) -> Samples:
    """Longest gap between tokens of a request.

    Requests with fewer than two tokens have none.
    """
    several = [each for each in requests if _num_tokens(each) > 1]
    return _of_each(several, lambda each: float(np.diff(_times(each)).max()))


def itl(requests: Sequence[MeasuredRequest], alone: Alone | None) -> Samples:
    """Gap between two tokens.

    The gaps of all requests together. The gap before a token that never came is infinite.
    """
    gaps = [np.diff(_times(each)) for each in requests if len(each.token_times) > 1]
    never = np.full(sum(not each.is_complete and _num_tokens(each) > 1 for each in requests), inf)
    return np.concatenate([*gaps, never])


def mean_gap(run: MeasuredRequest) -> float:
    """TPOT of a complete request; 0 if it has one token."""
    times = run.token_times
    return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 0.0


def _wait(run: MeasuredRequest) -> float:
    return inf if run.first_scheduled is None else run.first_scheduled - run.arrival


def _latency(run: MeasuredRequest) -> float:
    return run.token_times[-1] - run.arrival


def _num_tokens(run: MeasuredRequest) -> int:
    """That it got, or was to get."""
    return len(run.token_times) if run.is_complete else run.request.num_output_tokens


def _times(run: MeasuredRequest) -> Samples:
    return np.frombuffer(run.token_times, dtype=np.float64)


def _of_each(requests: Sequence[MeasuredRequest], value: Callable[[MeasuredRequest], float]) -> Samples:
    return np.array([value(each) if each.is_complete else inf for each in requests], dtype=np.float64)
