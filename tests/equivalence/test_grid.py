"""The same tokens, however the work was cut, shared, interrupted and overlapped."""

import itertools
from typing import Any

import pytest

from enginecore.clock import RealClock, VirtualClock
from enginecore.messages import EngineCoreRequest
from enginecore.sampling import SamplingParams
from enginecore_conformance.workloads import BrickWorkload
from tests.deferring import DEFERRING
from tests.equivalence.engines import OracleEngine

MAX_MODEL_LEN = 192
CHUNKS: dict[str, dict[str, Any]] = {
    "chunk16": {"scheduler.fcfs.prefill_chunk_size": 16},
    "chunk64": {"scheduler.fcfs.prefill_chunk_size": 64},
    "whole": {"enable_chunked_prefill": False},
}
BLOCK_SIZES = (8, 16, 32)
DEPTHS = ((1, False), (2, False), (2, True), (4, False), (4, True))


def make_requests(block_size, prefix="r"):
    workload = BrickWorkload(
        seed=block_size,
        block_size=block_size,
        num_bricks=2,
        max_bricks=160 // block_size,
        max_tokens=30,
        salts=(None, None, "other"),
    )
    return workload.requests(16, prefix=prefix)


def grid_settings(chunk, block_size, caching, pool):
    return {
        "block_size": block_size,
        "num_kv_blocks": 4096 // block_size if pool == "roomy" else 320 // block_size,
        "max_model_len": MAX_MODEL_LEN,
        "max_num_seqs": 8,
        "max_num_batched_tokens": MAX_MODEL_LEN,
        "enable_prefix_caching": caching,
        **CHUNKS[chunk],
    }


def grid(quick=tuple(CHUNKS)):
    """All cases; those of other kinds of chunks than `quick` are for `make test-full`."""
    return pytest.mark.parametrize(
        ("chunk", "block_size", "caching", "pool", "depth", "feeds_tokens"),
        [
            pytest.param(
                chunk, size, caching, pool, *depth,
                id=f"{chunk}-block{size}-{'' if caching else 'no'}cache-{pool}-depth{depth[0]}{'-feeds' * depth[1]}",
                marks=() if chunk in quick else pytest.mark.full,
            )
            for chunk, size, caching, pool, depth in itertools.product(
                CHUNKS, BLOCK_SIZES, (True, False), ("roomy", "tight"), DEPTHS
            )
        ],
    )  # fmt: skip


@grid()
def test_same_tokens(chunk, block_size, caching, pool, depth, feeds_tokens):
    engine = OracleEngine(
        oracle={"depth": depth, "feeds_tokens": feeds_tokens},
        **grid_settings(chunk, block_size, caching, pool),
    )
    engine.add(*make_requests(block_size))
    engine.run()
    assert engine.max_in_flight == depth
    assert (engine.num_chunks > 0) == (chunk != "whole")
    assert (engine.num_cached_tokens > 0) == caching
    assert (engine.stats.prefix_cache_hits > 0) == caching
    assert (engine.stats.num_preemptions > 0) == (pool == "tight")


@pytest.mark.parametrize(
    "oracle",
    [
        {},
        {"depth": 2, "feeds_tokens": True},
        {"two_phase": True},
        {"two_phase": True, "depth": 2},
    ],
)
@pytest.mark.parametrize("codec_round_trip", [False, True])
def test_same_tokens_through_the_codec_and_in_two_phases(oracle, codec_round_trip):
    engine = OracleEngine(
        oracle=oracle, block_size=8, num_kv_blocks=24, max_model_len=MAX_MODEL_LEN,
        **{"transport.inproc.codec_round_trip": codec_round_trip},
    )  # fmt: skip
    engine.add(*make_requests(8))
    engine.run()
    assert engine.stats.num_preemptions > 0
    assert engine.num_cached_tokens > 0


@pytest.mark.parametrize(("depth", "feeds_tokens"), [(1, True), *DEPTHS])
@pytest.mark.parametrize("scheduler", [component.name for component in DEFERRING])
def test_same_tokens_when_plans_ask_for_sampling_later(scheduler, depth, feeds_tokens):
    """Preempted between forward pass and sampling, too: the pool is tight."""
    engine = OracleEngine(
        oracle={"depth": depth, "feeds_tokens": feeds_tokens, "step_time": 1.0},
        components=DEFERRING,
        **{**grid_settings("whole", 8, True, "tight"), "scheduler.use": scheduler, "enable_chunked_prefill": True},
    )
    engine.add(*make_requests(8))
    engine.run()
    assert engine.stats.num_preemptions > 0
    assert any(trace.plan.defer_sampling for trace in engine.history)


def lone_request():
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    return EngineCoreRequest(request_id="lone", prompt_token_ids=[5, 6, 7], params=params)


def decodes_in_flight(engine):
    """For every decode of the lone request, how many steps were in flight when it was submitted."""
    return [trace.batches_in_flight for trace in engine.history[1:] if trace.plan.num_scheduled_tokens]


def test_a_lone_request_has_two_decodes_in_flight_when_tokens_are_fed():
    """Field case 131: overlap is there."""
    engine = OracleEngine(oracle={"depth": 2, "feeds_tokens": True, "step_time": 1.0})
    engine.add(lone_request())
    engine.run()
    assert decodes_in_flight(engine) == [2] * 11


def test_a_lone_request_waits_for_its_token_when_tokens_are_not_fed():
    """Field case 131: and here it cannot be."""
    engine = OracleEngine(oracle={"depth": 2, "step_time": 1.0})
    engine.add(lone_request())
    engine.run()
    assert decodes_in_flight(engine) == [1] * 11


def test_real_and_virtual_time_give_the_same_tokens():

    tokens = []
    for clock in (RealClock(), VirtualClock()):
        engine = OracleEngine(oracle={"depth": 2, "feeds_tokens": True, "step_time": 0.0005}, clock=clock)
        begin = clock.now()
        engine.add(*make_requests(16))
        engine.run()
        assert clock.now() - begin >= 0.0005 * len(engine.history)
        tokens.append(engine.tokens)
    assert tokens[0] == tokens[1]
