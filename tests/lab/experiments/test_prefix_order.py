"""SGLang (NeurIPS 2024): the longest cached prefix first loses no hit at any cache size; and who pays for it."""

from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest

from enginecore_lab.workload import Workload, WorkloadRequest
from tests.lab.experiments.engines import constant_steps, drawn, run, simulated

BLOCK = 16
OWN = 2
"""Blocks of a prompt that are its own."""

CAPACITIES = (22, 40, 80, 200, 600)
"""In blocks. The longest prompt takes 21; all different blocks together would take 1,500."""

GREEDY: dict[str, Any] = {"window": 1000, "patience": 1_000_000}
"""All that waits is compared, and nobody's patience ever ends."""


@cache
def workload():
    """Three levels of prefixes, 18 blocks in all, in no order; then two blocks and a token of their own."""
    levels = [{"branches": branches, "tokens": blocks * BLOCK} for branches, blocks in ((6, 8), (5, 6), (4, 4))]
    return drawn(
        400,
        prompt={"kind": "constant", "tokens": OWN * BLOCK + 1},
        output={"kind": "constant", "tokens": 1},
        prefix={"levels": levels},
    )


def blocks(of: Workload):
    """All full blocks of all prompts, and those that are different."""
    total = sum(len(each.hash_ids) + OWN for each in of.requests)
    return total, len({block for each in of.requests for block in each.hash_ids}) + OWN * len(of.requests)


@cache
def num_hits(policy, capacity, **settings):
    """Blocks found in the cache, with one request at a time, all of them waiting from the start."""
    of = run(workload(), constant_steps(1, num_kv_blocks=capacity), policy, **settings)
    return sum(each.num_cached_tokens for each in of.requests) / BLOCK


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_every_block_is_computed_once_however_small_the_cache(capacity):
    total, different = blocks(workload())
    assert num_hits("lpm", capacity, **GREEDY) == total - different


def test_in_order_of_arrival_hits_grow_with_the_cache():
    total, different = blocks(workload())
    hits = [num_hits("fcfs", capacity) for capacity in CAPACITIES]
    assert hits == sorted(set(hits))
    assert hits[0] < 0.2 * (total - different)
    assert hits[-1] < total - different
    assert num_hits("fcfs", 2000) == total - different


def test_bounded_patience_lies_in_between():
    for capacity in CAPACITIES:
        assert num_hits("fcfs", capacity) < num_hits("lpm", capacity) < num_hits("lpm", capacity, **GREEDY)


def test_who_shares_nothing_pays_for_it():
    """One request in ten has a prefix of its own; it waits until nobody with a better one is left."""
    rate = {"kind": "poisson", "rate": 11.0}
    prompt, output = {"kind": "constant", "tokens": 1024}, {"kind": "constant", "tokens": 8}
    warm = drawn(360, prompt=prompt, output=output, arrivals=rate, prefix={"levels": [{"branches": 3, "tokens": 2048}]})
    cold = drawn(40, seed=9, prompt={"kind": "constant", "tokens": 3072}, output=output,
                 arrivals={"kind": "poisson", "rate": 11.0 / 9})  # fmt: skip
    both = Workload(
        name="warm and cold",
        requests=sorted([*warm.requests, *(_renamed(each) for each in cold.requests)], key=lambda each: each.arrival),
        block_size=warm.block_size,
    )
    engine = simulated(max_num_seqs=4, max_model_len=8192)
    waits = {}
    for policy, settings in (("fcfs", {}), ("lpm", GREEDY)):
        of = run(both, engine, policy, **settings)
        waits[policy] = [
            each.token_times[0] - each.arrival for each in of.requests if each.request.request_id.startswith("cold")
        ]
    assert np.percentile(waits["lpm"], 95) > 2 * np.percentile(waits["fcfs"], 95)


def _renamed(request: WorkloadRequest) -> WorkloadRequest:
    return msgspec.structs.replace(request, request_id=f"cold {request.request_id}")
