"""What a run's pictures are drawn from: distributions, what holds over time, and what each tenant got.

Everything is thinned to a fixed number of points by rules without chance, so that the report of an hour's trace stays
small and comes out the same each time.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from enginecore.lab.run import Run

Floats = NDArray[np.float64]

PROMPT_TOKEN_WEIGHT = 1.0
OUTPUT_TOKEN_WEIGHT = 2.0


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


def ttft(run: Run) -> Floats:
    """Time from arrival to the first token of every request; infinite of those that did not get all they asked for."""
    return np.array([each.token_times[0] - each.arrival if each.is_complete else inf for each in run.requests])


def e2e_latency(run: Run) -> Floats:
    """Time from arrival to the last token of every request; infinite as above."""
    return np.array([each.token_times[-1] - each.arrival if each.is_complete else inf for each in run.requests])


def inter_token_latency(run: Run) -> Floats:
    """Every gap between two tokens, of all requests together; one that never came is infinite."""
    gaps = [np.diff(np.frombuffer(each.token_times)) for each in run.requests if len(each.token_times) > 1]
    broken = [each for each in run.requests if not each.is_complete and each.request.num_output_tokens > 1]
    return np.concatenate([*gaps, np.full(len(broken), inf)])


@dataclass(frozen=True, slots=True)
class Levels:
    """Something that stays as it is until it changes: `values[i]` holds from `times[i]` on; before, 0 does."""

    times: Floats
    values: Floats

    def mean(self, edges: Floats) -> Floats:
        """Its mean over time between each two neighbouring edges."""
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
    prompts: dict[str, list[tuple[float, float]]] = {name: [] for name in groups.values()}
    outputs: dict[str, list[Floats]] = {name: [] for name in groups.values()}
    for each in run.requests:
        name = groups[each.request.tenant]
        if each.first_scheduled is not None:
            prompts[name].append((each.first_scheduled, each.request.num_prompt_tokens))
        outputs[name].append(np.frombuffer(each.token_times))
    sizes = Counter(groups.values())
    return {name: np.cumsum(_given(prompts[name], outputs[name], edges)) / sizes[name] for name in prompts}


def _given(prompts: list[tuple[float, float]], outputs: list[Floats], edges: Floats) -> Floats:
    times, tokens = zip(*prompts, strict=True) if prompts else ((), ())
    read = np.histogram(np.array(times), edges, weights=np.array(tokens))[0]
    emitted = np.histogram(np.concatenate([np.empty(0), *outputs]), edges)[0]
    return PROMPT_TOKEN_WEIGHT * read + OUTPUT_TOKEN_WEIGHT * emitted


def _tenant_groups(run: Run, at_most: int) -> dict[str, str]:
    """The name under which each tenant is shown."""
    asked: dict[str, float] = {}
    for request in run.workload.requests:
        weight = PROMPT_TOKEN_WEIGHT * request.num_prompt_tokens + OUTPUT_TOKEN_WEIGHT * request.num_output_tokens
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
