"""Every bundled policy runs on the simulated executor, whatever is in flight, and gives everybody all tokens."""

from random import Random

import pytest

from enginecore.clock import VirtualClock
from enginecore.messages import FinishReason
from enginecore_schedulers import enginecore_components
from tests.simulated.engines import Session, make_core, request

POLICIES = [each.name for each in enginecore_components() if each.kind == "scheduler"]
IN_FLIGHT = [{}, {"overlap": True}, {"pipeline_parallel_size": 2}, {"pipeline_parallel_size": 4}]


@pytest.mark.parametrize("more", IN_FLIGHT, ids=["one", "overlap", "two stages", "four stages"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_serves_everybody(policy, more):
    """Field case 137: a policy has its effect on this executor too."""
    random = Random(7)
    wanted = {f"r{n}": random.randint(1, 40) for n in range(60)}
    jobs = [
        (0.002 * random.randint(0, 100), request(name, prompt=random.randint(1, 120), tokens=tokens, tenant=name[-1]))
        for name, tokens in wanted.items()
    ]
    clock = VirtualClock()
    core = make_core(
        clock,
        simulated={"hardware": "H200-SXM", **more},
        scheduler={"use": policy},
        num_kv_blocks=40,
        max_model_len="auto",
        max_num_seqs=16,
        max_num_batched_tokens=96,
        debug={"check_invariants": True},
    )
    session = Session(core, clock, jobs)
    assert {name: len(times) for name, times in session.times.items()} == wanted
    assert {reason for _, reason in session.ended.values()} == {FinishReason.STOP}
    stats = core.scheduler.get_stats()
    assert stats.num_free_blocks == stats.num_blocks
    assert core.executor.collective_rpc("get_request_ids") == [[]]
