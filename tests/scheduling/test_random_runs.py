"""Crowds of requests in small pools under every kind of executor: long random runs, to the end."""

import itertools
from random import Random

import pytest

from enginecore.messages import FinishReason
from enginecore_conformance.chaos import Chaos
from enginecore_conformance.workloads import BrickWorkload
from enginecore_schedulers.fcfs import Fcfs
from tests.scheduling.harnesses import make_harness

BLOCK_SIZE = 4


def crowd(seed, policy, *, caching, oracle):
    """24 requests that arrive step by step while some are aborted and the cache is reset now and then."""
    random = Random(seed)
    harness = make_harness(
        policy=policy,
        num_blocks=random.choice((8, 11, 14)),
        block_size=BLOCK_SIZE,
        max_num_seqs=4,
        max_num_batched_tokens=16,
        max_model_len=64,
        enable_prefix_caching=caching,
        oracle={"vocab_size": 64, **oracle},
    )
    workload = BrickWorkload(seed=seed, block_size=BLOCK_SIZE, vocab_size=64, salts=(None, "x"), max_tokens=16)
    for request in workload.requests(24):
        harness.add(request)
        for _ in range(random.randrange(4)):
            harness.step()
        if random.random() < 0.2:
            harness.abort(random.sample(harness.transcript.open_ids, min(2, len(harness.transcript.open_ids))))
        if random.random() < 0.05:
            harness.reset_prefix_cache(reset_running_requests=True)
    harness.run(20_000)
    return harness


@pytest.mark.parametrize("policy", ["fcfs", "chaos"])
@pytest.mark.parametrize(("depth", "feeds_tokens"), [(1, False), (2, False), (2, True), (4, False), (4, True)])
def test_crowds_get_their_tokens(policy, depth, feeds_tokens):
    preemptions = hits = completed = in_flight = 0
    for seed, in_order, caching in itertools.product(range(3), (True, False), (True, False)):
        oracle = {"depth": depth, "feeds_tokens": feeds_tokens, "in_order": in_order}
        harness = crowd(seed, Fcfs() if policy == "fcfs" else Chaos(seed), caching=caching, oracle=oracle)
        in_flight = max(in_flight, harness.max_in_flight)
        preemptions += harness.scheduler.get_stats().num_preemptions
        hits += harness.scheduler.get_stats().prefix_cache_hits
        completed += sum(
            story.finish_reason in (FinishReason.STOP, FinishReason.LENGTH) for story in harness.transcript.stories
        )
    assert in_flight == depth
    assert preemptions > 50
    assert hits >= 20
    assert completed > 12 * 15
