"""Every policy in an engine as users build it, in one process and through `zmq`: the tokens of the model."""

import pytest

from enginecore_conformance.workloads import BrickWorkload
from tests.equivalence.engines import OracleEngine
from tests.schedulers.test_every_policy import COMPONENTS, SETTINGS

WORKLOAD = BrickWorkload(seed=3, block_size=8, max_bricks=12, max_tokens=30, salts=(None, None, "other"))


@pytest.mark.parametrize("transport", ["inproc", pytest.param("zmq", marks=pytest.mark.full)])
@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("name", sorted(COMPONENTS))
def test_same_tokens(name, depth, transport):
    engine = OracleEngine(
        oracle={"depth": depth, "feeds_tokens": depth > 1},
        block_size=8,
        num_kv_blocks=20,
        max_model_len=128,
        max_num_seqs=6,
        max_num_batched_tokens=64,
        **{"transport.use": transport, "scheduler": {"use": name, name: SETTINGS[name]}},
    )
    try:
        engine.client.call_utility("pause")  # so that all are there before the first step
        engine.add(*WORKLOAD.requests(16))
        engine.client.call_utility("resume")
        engine.run()  # checks every token, and that no block is left behind
        assert engine.max_in_flight == depth
        assert engine.num_cached_tokens > 0
        assert engine.stats.num_preemptions > 0
    finally:
        engine.client.shutdown()
