"""Mooncake (FAST 2025): the larger the cache, the more of a real trace is found in it, up to all that comes again."""

import msgspec
import pytest

from enginecore_lab.workloads import read_workload
from tests.lab.experiments.engines import constant_steps, metric, run
from tests.shared_data import shared

BLOCK = 512
CAPACITIES = (300, 1_000, 3_000, 10_000, 20_000)


def test_hits_of_real_conversations_grow_with_the_cache():
    """The prompts of the first 800 requests, one at a time."""
    path = str(shared("traces/mooncake_conversation.jsonl"))
    trace = read_workload({"kind": "mooncake", "path": path, "requests_per_replicate": 800}).make(0, 0)
    prompts = msgspec.structs.replace(
        trace, requests=[msgspec.structs.replace(each, num_output_tokens=1) for each in trace.requests]
    )
    full = [each.hash_ids[: each.num_prompt_tokens // BLOCK] for each in trace.requests]
    different = len({block for ids in full for block in ids})
    again = (sum(map(len, full)) - different) * BLOCK / sum(each.num_prompt_tokens for each in trace.requests)
    shares = [
        metric("cache_hit_share", run(prompts, constant_steps(1, block_size=BLOCK, num_kv_blocks=capacity)))
        for capacity in CAPACITIES
    ]
    assert shares == sorted(shares)
    assert shares[0] < 0.5 * shares[-1]
    assert shares[-1] == pytest.approx(again, rel=0.01)
