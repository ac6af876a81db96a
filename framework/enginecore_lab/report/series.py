"""Series that pictures are drawn from: distributions, levels over time, and the service of each tenant.

Everything is thinned to a fixed number of points by rules without chance, so that the report of an hour's trace stays
small and comes out the same each time.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from enginecore_lab.metrics.service import OUTPUT_WEIGHT, PROMPT_WEIGHT, Service
from enginecore_lab.run import RequestRun, Run

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Points of an empirical distribution function: `shares[i]` of the population are at most `values[i]`."""

    values: Floats
    shares: Floats


def ecdf(values: Floats, points: int = 500) -> Distribution:
    """The empirical distribution of values, with at most about so many points, half of them close to the tail.

    Args:
        values: In any order. What is infinite counts and is not drawn: the curve then ends below 1.
        points: At most; each is an exact point of the distribution, the smallest and the largest among them.
    """
    finite = np.sort(values[np.isfinite(values)])
    count = len(finite)
    chosen = np.arange(count)
    if count > points:
        body = np.linspace(0, count - 1, points // 2)
        tail = count - np.geomspace(1, count, points // 2)
        chosen = np.unique(np.rint(np.concatenate([body, tail])).astype(np.int64))
    return Distribution(finite[chosen], (chosen + 1) / max(len(values), 1))


@dataclass(frozen=True, slots=True)
class Levels:
    """Something that stays as it is until it changes: `values[i]` holds from `times[i]` on; before, 0 does."""

    times: Floats
    values: Floats

    def mean(self, edges: Floats) -> Floats:
        """Mean over time between each two neighbouring edges."""
        if not len(self.times):
            return np.zeros(len(edges) - 1)
        areas = np.concatenate([[0.0], np.cumsum(self.values[:-1] * np.diff(self.times))])
        held = np.searchsorted(self.times, edges, side="right") - 1
        since = np.where(held >= 0, areas[held] + self.values[held] * (edges - self.times[held]), 0.0)
        return np.diff(since) / np.diff(edges)


def time_edges(end: float, buckets: int = 400) -> Floats:
    """Edges of equal stretches of time from 0 to the end; a run that took no time is shown as one second."""
    return np.linspace(0.0, end if end > 0 else 1.0, buckets + 1)


def queue_length(run: Run) -> Levels:
    """How many requests waited: as each step left it, until the next one."""
    return Levels(np.frombuffer(run.steps.settled), np.array(run.steps.num_waiting, float))


def kv_usage(run: Run) -> Levels:
    """Which share of the KV blocks was in use: as each step left it, until the next one."""
    free = np.array(run.steps.num_free_blocks, float)
    return Levels(np.frombuffer(run.steps.settled), 1.0 - free / max(run.info.num_blocks, 1))


def decode_tokens(run: Run) -> Levels:
    """Decode tokens in the steps under way; 0 between steps."""
    return _under_way(run, np.array(run.steps.num_decodes, float))


def prefill_tokens(run: Run) -> Levels:
    """Prefill tokens in the steps under way; 0 between steps."""
    return _under_way(run, np.array(run.steps.num_prefill_tokens, float))


def _under_way(run: Run, amounts: Floats) -> Levels:
    """Steps may overlap (several batches in flight): each adds its amount at its start and takes it at its end."""
    times = np.concatenate([np.frombuffer(run.steps.started), np.frombuffer(run.steps.settled)])
    order = np.argsort(times, kind="stable")
    levels = np.cumsum(np.concatenate([amounts, -amounts])[order])
    return Levels(times[order], levels)


def tenant_service(run: Run, edges: Floats, at_most: int = 8) -> Mapping[str, Floats]:
    """Weighted tokens that each tenant had been given by the end of each stretch of time.

    As fair-queueing schedulers count it: a prompt when its request is first scheduled, an output token, which weighs
    twice, when it is emitted. Of tenants beyond so many, those that ask for least, the mean is shown.

    Returns:
        Sums by tenant, those that ask for most first; the same tenants in every run of one workload.
    """
    groups = _tenant_groups(run, at_most)
    requests: dict[str, list[RequestRun]] = {name: [] for name in groups.values()}
    for each in run.requests:
        requests[groups[each.request.tenant]].append(each)
    sizes = Counter(groups.values())
    return {name: Service(of, run.makespan).by(edges[1:]) / sizes[name] for name, of in requests.items()}


def _tenant_groups(run: Run, at_most: int) -> dict[str, str]:
    """The name under which each tenant is shown."""
    asked: dict[str, float] = {}
    for request in run.workload.requests:
        weight = PROMPT_WEIGHT * request.num_prompt_tokens + OUTPUT_WEIGHT * request.num_output_tokens
        asked[request.tenant] = asked.get(request.tenant, 0.0) + weight
    names = sorted(asked, key=lambda name: (-asked[name], name))
    if len(names) <= at_most:
        return {name: name or "(no tenant)" for name in names}
    shown = names[: at_most - 1]
    rest = f"{len(names) - len(shown)} others, mean"
    return {name: name or "(no tenant)" for name in shown} | dict.fromkeys(names[len(shown) :], rest)


def as_list(values: Floats) -> list[Any]:
    """Plain numbers for JSON with six significant digits, which no screen exceeds; None where there is no value."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values.tolist()]
