"""Workloads on engine cores: ready hashes hit exactly what real tokens hit."""

from typing import Any

import pytest

from enginecore.core import EngineCore
from enginecore.messages import FinishReason
from enginecore_lab.workload import Workload
from enginecore_lab.workloads import longest_output, to_engine_request
from tests.core.engines import make_core, run
from tests.core.faceless import make_faceless
from tests.lab.workloads.making import synthetic

POOL: dict[str, Any] = {"num_kv_blocks": 40, "block_size": 4, "max_num_batched_tokens": 512, "max_model_len": 160}


def serve(core: EngineCore, made: Workload, *, reveal_lengths: bool = False) -> list[int]:
    """Cached tokens of each request, one after another; each must get exactly what it asked for."""
    longest, hits = longest_output(made), []
    model_free = core.executor.capabilities.model_free
    for each in made.requests:
        core.add_request(
            *to_engine_request(
                each,
                made,
                core.info,
                model_free=model_free,
                reveal_lengths=reveal_lengths,
                longest_output=longest,
            )
        )
        outputs = run(core)
        assert sum(len(output.new_token_ids) for output in outputs) == each.num_output_tokens
        reason = FinishReason.STOP if model_free and not reveal_lengths else FinishReason.LENGTH
        assert outputs[-1].finish_reason is reason
        hits.append(outputs[0].num_cached_tokens)
    return hits


@pytest.mark.parametrize("manager", ["paged", "radix"])
@pytest.mark.parametrize("block_size", [4, 16])
def test_ready_hashes_hit_what_tokens_hit(manager, block_size):
    """Also while blocks are evicted, and where the engine's blocks are smaller than the workload's."""
    made = synthetic(
        num_requests=60,
        prompt={"kind": "uniform", "low": 1, "high": 30},
        output={"kind": "constant", "tokens": 1},  # more of them would be published where they have content
        prefix={"levels": [{"branches": 2, "tokens": 32}, {"branches": 4, "tokens": 16}]},
        block_size=block_size,
    )
    chosen: dict[str, Any] = {"kv_cache_manager": {"use": manager}}
    simulated = serve(make_faceless(**POOL, **chosen), made)
    real = serve(make_core(**POOL, **chosen), made)
    assert simulated == real
    assert sum(hits == 0 for hits in real) > 1
    assert sum(hits == 32 for hits in real) > 5
    assert sum(hits == 48 for hits in real) > 5


def test_the_next_turn_hits_what_was_generated_if_the_workload_says_so():
    table: dict[str, Any] = {
        "num_requests": 20,
        "prompt": {"kind": "constant", "tokens": 10},
        "output": {"kind": "constant", "tokens": 9},
        "block_size": 4,
    }
    session = {"turns": {"kind": "constant", "tokens": 4}}
    # of turn n, 19 n + 10 tokens are asked and 9 answered; the last of them is never computed
    shared = serve(make_faceless(**POOL), synthetic(**table, sessions=session))
    assert shared[:4] == [0, 16, 36, 56]
    forgotten = serve(make_faceless(**POOL), synthetic(**table, sessions={**session, "share_outputs": False}))
    assert forgotten[:4] == [0, 8, 28, 48]


def test_lengths_may_be_revealed():
    serve(
        make_faceless(**POOL),
        synthetic(num_requests=3, prompt={"kind": "constant", "tokens": 9}, output={"kind": "geometric", "mean": 5}),
        reveal_lengths=True,
    )
