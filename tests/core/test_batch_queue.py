"""Several batches in flight, on the oracle and a virtual clock: pipeline stages that take a known time are kept busy,
and nothing that happens meanwhile costs a token (field cases 26, 49, 57, 68, 70 and 71).
"""

from collections import Counter
from itertools import pairwise

import pytest

from enginecore.errors import EngineDeadError
from enginecore.messages import EngineCoreRequest
from enginecore.sampling import SamplingParams
from tests.equivalence.engines import OracleEngine

STAGE = 0.010  # seconds
COUNT = 40


def request(name, prompt=8, count=COUNT):
    params = SamplingParams(temperature=0, seed=0, ignore_eos=True, max_tokens=count)
    return EngineCoreRequest(request_id=str(name), prompt_token_ids=list(range(3, 3 + prompt)), params=params)


def run(stages, depth, num_requests=16, count=COUNT, oracle=None, **settings):
    """The engine at its end, its steps with tokens, and the seconds that these took."""
    engine = OracleEngine(
        oracle={"stages": stages, "depth": depth, **(oracle or {"step_time": STAGE})},
        num_kv_blocks=256, max_num_seqs=16, **settings,
    )  # fmt: skip
    engine.add(*(request(number, count=count) for number in range(num_requests)))
    while engine.transcript.open_ids:
        engine.get_output()
    seconds = engine.clock.now()
    engine.run()  # checks every token, and that nothing is left
    steps = [trace for trace in engine.history if trace.plan.num_scheduled_tokens]
    assert max(trace.batches_in_flight for trace in steps) == depth
    return engine, steps, seconds


def utilisation(stages, depth, token_time=0.001):
    """Share of the time for which a stage computes; it takes `token_time` for each token."""
    _, steps, seconds = run(stages, depth, count=100, oracle={"token_time": token_time}, max_num_batched_tokens=32)
    return sum(trace.plan.total_num_scheduled_tokens for trace in steps) * token_time / seconds


@pytest.mark.parametrize("stages", [2, 4])
def test_throughput_is_that_of_stages_that_are_never_idle_and_without_the_batch_queue_a_fraction(stages):
    assert utilisation(stages, depth=stages) >= 0.9
    assert utilisation(stages, depth=1) == pytest.approx(1 / stages)


@pytest.mark.parametrize("stages", [2, 4])
def test_70_steps_follow_one_another_through_the_stages(stages):
    _, steps, seconds = run(stages, depth=stages)
    ideal = (len(steps) + stages - 1) * STAGE
    assert ideal <= seconds * (1 + 1e-9) <= ideal / 0.9
    _, steps, seconds = run(stages, depth=1)
    assert seconds == pytest.approx(len(steps) * stages * STAGE)


@pytest.mark.parametrize("stages", [2, 4])
def test_70_results_are_applied_in_order_and_no_request_decodes_in_two_batches_at_once(stages):
    _, steps, _ = run(stages, depth=stages)
    assert all(one.plan.step < other.plan.step for one, other in pairwise(steps))
    for number, trace in enumerate(steps):
        before = steps[max(number + 1 - trace.batches_in_flight, 0) : number]
        in_flight = {name for other in before for name in other.plan.num_scheduled_tokens}
        assert not in_flight & set(trace.plan.num_scheduled_tokens)


def test_70_a_request_that_feeds_itself_may_be_in_all_batches_at_once():
    _, steps, seconds = run(2, depth=2, num_requests=1, oracle={"step_time": STAGE, "feeds_tokens": True})
    assert [trace.batches_in_flight for trace in steps[1:]] == [2] * (COUNT - 1)
    assert seconds == pytest.approx((COUNT + 1) * STAGE)


def test_prompts_in_chunks_fill_the_stages_by_themselves():
    """Chunks of one prompt need no token of one another, so they are in flight together."""
    engine = OracleEngine(
        oracle={"stages": 4, "depth": 4, "step_time": STAGE}, max_num_batched_tokens=8, num_kv_blocks=64, block_size=4
    )
    engine.add(request("long", prompt=80, count=1))
    engine.run()
    steps = [trace for trace in engine.history if trace.plan.num_scheduled_tokens]
    assert [trace.batches_in_flight for trace in steps] == [1, 2, 3, *[4] * 7]
    assert steps[-1].submitted == pytest.approx(9 * STAGE)


@pytest.mark.parametrize("phase", range(9))
@pytest.mark.parametrize("victim", range(4))
def test_68_an_abort_reaches_every_batch_in_flight(victim, phase):
    """Four stages, a request in each: whichever goes, whenever, its blocks are free after its last step."""
    engine = OracleEngine(
        oracle={"stages": 4, "depth": 4, "step_time": STAGE}, max_num_seqs=4, max_num_batched_tokens=8,
        num_kv_blocks=16, block_size=4, max_model_len=16,
    )  # fmt: skip
    engine.add(*(request(number, prompt=7 + number % 2, count=6) for number in range(4)))
    for _ in range(phase):
        engine.get_output()
    if str(victim) in engine.transcript.open_ids:
        engine.abort(str(victim))
    engine.add(request("next", prompt=8, count=8))
    engine.run()  # checks every token, and that no block is held
    history = engine.history
    told = [number for number, trace in enumerate(history) if str(victim) in trace.plan.finished_ids]
    ran = [number for number, trace in enumerate(history) if str(victim) in trace.plan.num_scheduled_tokens]
    assert len(told) == bool(ran)
    assert not ran or ran[-1] < told[0]


def test_71_one_seat_finishes_a_prompt_in_chunks():
    engine = OracleEngine(
        oracle={"stages": 2, "depth": 2, "step_time": STAGE}, max_num_seqs=1, max_num_batched_tokens=8,
        num_kv_blocks=16, block_size=4, max_model_len=64, enable_prefix_caching=False,
    )  # fmt: skip
    engine.add(request("a", prompt=24, count=4), request("b", prompt=24, count=4))
    engine.run()
    assert engine.num_chunks == 4
    assert engine.max_in_flight == 2


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_several_batches_in_flight_end_on_the_virtual_clock(depth):
    """A simulation: hours of steps take no time, and each ends when it must."""
    _, steps, seconds = run(4, depth, num_requests=depth, oracle={"step_time": 3600.0})
    assert all((trace.submitted / 3600.0).is_integer() for trace in steps)
    # each token has all four stages behind it before the next can be asked for; the others follow close behind
    assert seconds == (COUNT * 4 + depth - 1) * 3600.0


# -- preemption, freeing and failures with steps in flight -----------------------------------------------------------


def tight(depth, count=24, **oracle):
    """Six requests in a pool that holds little more than two of them; the engine at its end."""
    engine = OracleEngine(
        oracle={"depth": depth, "step_time": STAGE, **oracle},
        num_kv_blocks=18, block_size=4, max_model_len=40, enable_prefix_caching=False,
    )  # fmt: skip
    engine.add(*(request(number, prompt=8 + number % 4, count=count) for number in range(6)))
    engine.run()
    return engine


@pytest.mark.parametrize("oracle", [{}, {"feeds_tokens": True}, {"stages": 2}, {"in_order": False}], ids=str)
@pytest.mark.parametrize("depth", [2, 3])
def test_26_preemption_with_steps_in_flight_loses_no_token_and_repeats_none(depth, oracle):
    """The books of `debug.check_invariants` hold after every step; the tokens are those of one step at a time."""
    alone, engine = tight(1), tight(depth, **oracle)
    assert engine.tokens == alone.tokens
    assert engine.max_in_flight == depth
    victims = Counter(name for trace in engine.history for name in trace.plan.preempted_ids)
    assert max(victims.values()) >= 2, "nobody was preempted twice"


@pytest.mark.parametrize("in_order", [True, False])
def test_49_blocks_that_are_freed_with_steps_in_flight_are_fenced_and_evict_nobody_more(in_order):
    """The pool is exactly full when one request ends and another needs a block; the oracle checks who owns what."""
    engine = OracleEngine(
        oracle={"depth": 3, "step_time": STAGE, "feeds_tokens": True, "in_order": in_order},
        num_kv_blocks=12, block_size=4, max_model_len=48, enable_prefix_caching=False,
    )  # fmt: skip
    engine.add(request("ends", prompt=12, count=4), *(request(name, prompt=13, count=20) for name in "abc"))
    engine.run()
    (finished,) = (trace.plan.step for trace in engine.history if "ends" in trace.plan.finished_ids)
    preempted = [trace.plan.step for trace in engine.history if trace.plan.preempted_ids]
    assert 0 < finished - preempted[0] < 3, "both were to be in flight at once"
    # each of the three needs 9 of the 12 blocks in the end, so two give way, one of them twice
    assert [len(trace.plan.preempted_ids) for trace in engine.history if trace.plan.preempted_ids] == [1, 1, 1]


def test_57_the_first_phase_s_error_counts_and_the_second_is_not_tried():
    engine = OracleEngine(oracle={"two_phase": True, "faults": [{"kind": "fail", "step": 2}]})
    engine.add(request("r"))
    assert [output.new_token_ids for output in engine.get_output()] == [engine.tokens["r"]]
    with pytest.raises(EngineDeadError) as raised:
        engine.get_output()
    assert "step 2" in str(raised.value.__cause__)
    assert "OracleFault: the oracle was set to fail at step 2" in str(raised.value.__cause__)
