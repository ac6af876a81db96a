"""The oracle runs right plans to the right tokens, and shows each seeded fault for what it is."""

import json

import pytest

from enginecore.clock import RealClock, VirtualClock
from enginecore.errors import EngineDeadError, InvariantError
from enginecore.sampling import SamplingParams
from enginecore_conformance.oracle.settings import Fault, OracleSettings
from tests.conformance.oracles import MODEL, PARAMS, PROMPT, delta, make_oracle, new

EXPECTED = MODEL.expected_tokens(PROMPT, PARAMS)


def test_prompt_in_one_step_then_decodes():
    bench = make_oracle()
    tokens = bench.run({"a": 6}, new=[new()])["a"]
    tokens += bench.run({"a": 1})["a"] + bench.run({"a": 1})["a"]
    tokens += bench.run({"a": 1}, deltas=[delta(blocks=[9], computed=8)])["a"]
    assert tokens == EXPECTED[:4]


def test_prompt_in_chunks_gives_no_token_before_the_last():
    bench = make_oracle()
    assert bench.run({"a": 3}, new=[new()]) == {}
    assert bench.run({"a": 2}) == {}
    assert bench.run({"a": 1}) == {"a": EXPECTED[:1]}


def test_prefix_hit_gives_the_same_token():
    bench = make_oracle()
    bench.run({"a": 6}, new=[new()])
    hit = new("b", blocks=(0, 5), computed=4)
    assert bench.run({"b": 2}, new=[hit]) == {"b": EXPECTED[:1]}


def test_preempted_request_resumes_with_its_output():
    bench = make_oracle()
    bench.run({"a": 6}, new=[new()])
    again = new(tokens=[*PROMPT, EXPECTED[0]], num_prompt=6, blocks=(7, 3))
    assert bench.run({"a": 7}, new=[again], preempted=["a"]) == {"a": EXPECTED[1:2]}


def test_a_freed_block_may_be_written_by_the_next_step():
    bench = make_oracle(depth=2, feeds_tokens=True)
    first = bench.submit({"a": 6}, new=[new()])
    second = bench.submit({"b": 6}, new=[new("b")], finished=["a"])
    assert bench.result(first).sampled_token_ids == [EXPECTED[:1]]
    assert bench.result(second).sampled_token_ids == [EXPECTED[:1]]


def test_tokens_depend_on_salt_adapter_seed_and_every_token():
    sampled = SamplingParams(temperature=1, seed=5, max_tokens=20, ignore_eos=True)
    streams = [
        MODEL.expected_tokens(PROMPT, PARAMS),
        MODEL.expected_tokens(PROMPT, PARAMS, salt="X"),
        MODEL.expected_tokens(PROMPT, PARAMS, adapter="X"),
        MODEL.expected_tokens(PROMPT, sampled),
        MODEL.expected_tokens([99, *PROMPT[1:]], PARAMS),
    ]
    assert len({tuple(stream[:20]) for stream in streams}) == 5


def test_the_truth_ends_by_eos_stop_token_and_length():
    free = MODEL.expected_tokens(PROMPT, SamplingParams(temperature=0, max_tokens=None, ignore_eos=True))
    assert len(free) == 64 - 6
    stop = free[5]
    at = free.index(stop)
    stopped = MODEL.expected_output(PROMPT, SamplingParams(temperature=0, ignore_eos=True, stop_token_ids=(stop,)))
    assert (stopped.token_ids, str(stopped.finish_reason), stopped.stop_reason) == (free[: at + 1], "stop", stop)
    small = MODEL.__class__(vocab_size=4, eos_token_ids=(0,), max_model_len=1000)
    ended = small.expected_output(PROMPT, SamplingParams(temperature=0, max_tokens=500))
    assert (ended.token_ids.index(0), str(ended.finish_reason), ended.stop_reason) == (
        len(ended.token_ids) - 1, "stop", None,
    )  # fmt: skip
    later = small.expected_output(PROMPT, SamplingParams(temperature=0, max_tokens=500, min_tokens=40))
    assert 0 not in later.token_ids[:40]
    assert later.token_ids[-1] == 0


# -- faults that a wrong token shows, without verification --


def test_unverified_wrong_block_table_is_a_wrong_token():
    bench = make_oracle(verify=False)
    bench.run({"a": 6}, new=[new()])
    assert bench.run({"b": 2}, new=[new("b", blocks=(3, 5), computed=4)])["b"] != EXPECTED[:1]


def test_unverified_block_given_away_too_early_is_a_wrong_token():
    bench = make_oracle(verify=False)
    bench.run({"a": 6}, new=[new()])
    bench.run({"b": 6}, new=[new("b", tokens=[1, 2, 3, 4, 5, 6])])
    assert bench.run({"a": 1})["a"] != EXPECTED[1:2]


def test_unverified_stale_slot_is_a_wrong_token():
    bench = make_oracle(verify=False)
    bench.run({"x": 8}, new=[new("x", tokens=[1, 2, 3, 4, 5, 6, 7, 8])])
    bench.run({"a": 1}, new=[new(computed=5)], finished=["x"])
    assert bench.run({"a": 1})["a"] != EXPECTED[1:2]


def test_unverified_equal_block_behind_another_prefix_is_a_wrong_token():
    bench = make_oracle(verify=False)
    bench.run({"a": 8}, new=[new(tokens=[1, 1, 1, 1, 7, 7, 7, 7])])
    prompt = [2, 2, 2, 2, 7, 7, 7, 7, 3]
    bench.run({"b": 4}, new=[new("b", tokens=prompt, blocks=(5, 1, 6))])
    wrong = bench.run({"c": 1}, new=[new("c", tokens=prompt, blocks=(5, 1, 7), computed=8)])["c"]
    assert wrong != MODEL.expected_tokens(prompt, PARAMS)[:1]


def test_unverified_lost_token_is_a_wrong_token():
    bench = make_oracle(verify=False)
    bench.run({"a": 6}, new=[new()])
    bench.run({"a": 1})
    lost = new(tokens=[*PROMPT, EXPECTED[1]], num_prompt=6, blocks=(7, 3))
    assert bench.run({"a": 7}, new=[lost], preempted=["a"])["a"] != EXPECTED[2:3]


def test_unverified_wrong_salt_is_a_wrong_token():
    bench = make_oracle(verify=False)
    bench.run({"a": 6}, new=[new(salt="X")])
    right = MODEL.expected_tokens(PROMPT, PARAMS, salt="Y")[:1]
    assert bench.run({"b": 2}, new=[new("b", blocks=(0, 5), computed=4, salt="Y")])["b"] != right


# -- faults that verification names --


def violation(bench, scheduled, **changes):
    with pytest.raises(InvariantError) as caught:
        bench.run(scheduled, **changes)
    return str(caught.value)


@pytest.fixture
def running():
    """An oracle that computed the six prompt tokens of request a in blocks 0 and 1."""
    bench = make_oracle()
    bench.run({"a": 6}, new=[new()])
    return bench


HIT = {"blocks": (0, 5), "computed": 4}

PLANS = {
    "unknown id": ({"z": 1}, {}, "'z' is scheduled, but the worker does not know it"),
    "new though known": ({"a": 6}, {"new": [new(blocks=(2, 3))]}, "'a' is new, but the worker knows it already"),
    "delta of an unknown": ({"a": 1}, {"deltas": [delta("z", computed=0)]}, "'z' has a delta"),
    "preempted unknown": ({"a": 1}, {"preempted": ["z"]}, "'z' is preempted, but the worker does not know it"),
    "gone, yet scheduled": ({"a": 1}, {"finished": ["a"]}, "'a' is scheduled, but the worker does not know it"),
    "finished twice": ({}, {"finished": ["a", "a"]}, "finished_ids names ['a'] twice"),
    "new twice": ({"b": 2}, {"new": [new("b", **HIT), new("b", **HIT)]}, "new_requests names ['b'] twice"),
    "no tokens": ({"a": 0}, {}, "0 tokens scheduled, must be at least 1"),
    "negative tokens": ({"a": -1}, {}, "-1 tokens scheduled, must be at least 1"),
    "nothing": ({}, {}, "an empty plan must not be executed"),
    "token budget": (
        {"b": 33},
        {"new": [new("b", tokens=range(33), blocks=range(2, 11))]},
        "33 tokens scheduled, above max_num_batched_tokens = 32",
    ),
    "seats": (
        {"a": 1},
        {"new": [new(f"n{n}", blocks=(2 * n + 2, 2 * n + 3)) for n in range(4)]},
        "5 requests hold blocks, above max_num_seqs = 4",
    ),
    "block outside": ({"b": 6}, {"new": [new("b", blocks=(2, 16))]}, "block 16 is outside the pool of 16"),
    "hit outside": (
        {"b": 2},
        {"new": [new("b", blocks=(-1, 5), computed=4)]},
        "block -1 is outside the pool of 16",
    ),
    "block of another": ({"b": 6}, {"new": [new("b", blocks=(2, 1))]}, "block 1 is given to it to write to"),
    "block twice": ({"b": 6}, {"new": [new("b", blocks=(2, 2))]}, "block 2 is given to it to write to"),
    "grown by another's": ({"a": 1}, {"deltas": [delta(blocks=[0], computed=6)]}, "block 0 is given to it"),
    "past its blocks": ({"b": 6}, {"new": [new("b", blocks=(2,))]}, "6 tokens, but its blocks hold 4"),
    "other count": (
        {"a": 1},
        {"deltas": [delta(computed=5)]},
        "num_computed_tokens = 5 in its delta, but the worker has computed 6",
    ),
    "token not known": ({"a": 2}, {}, "position 7 is scheduled, but only 7 of its tokens are known"),
    "nothing to compute": (
        {"b": 1},
        {"new": [new("b", computed=6)]},
        "6 of 6 tokens are computed; the last never is",
    ),
    "wrong hit": (
        {"b": 2},
        {"new": [new("b", blocks=(3, 5), computed=4)]},
        "the slot of position 0, in block 3, does not hold",
    ),
    "hit of another salt": (
        {"b": 2},
        {"new": [new("b", salt="X", **HIT)]},
        "the slot of position 0, in block 0, does not hold",
    ),
    "half-written hit": (
        {"b": 1},
        {"new": [new("b", tokens=[*PROMPT, 1, 2, 3], blocks=(0, 1, 5), computed=8)]},
        "the slot of position 6, in block 1, does not hold",
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_verified_plan_is_refused(running, name):
    scheduled, changes, message = PLANS[name]
    assert message in violation(running, scheduled, **changes)


def test_verified_steps_count_up(running):
    running.step = 0
    assert "comes after step 0" in violation(running, {"a": 1})


def test_verified_length_is_limited():
    bench = make_oracle(num_blocks=32)
    long = new(tokens=range(65), blocks=range(17))
    bench.run({"a": 32}, new=[long])
    bench.run({"a": 32})
    assert "65 tokens, above max_model_len = 64" in violation(bench, {"a": 1})


# -- what is in flight --


def test_without_feeding_a_token_is_not_known_before_it_came_back():
    bench = make_oracle(depth=2)
    first = bench.submit({"a": 6}, new=[new()])
    second = bench.submit({"a": 1})
    bench.result(first)
    with pytest.raises(InvariantError, match="scheduled before its token, sampled in step 0, has come back"):
        bench.result(second)


def test_without_feeding_chunks_of_a_prompt_may_be_in_flight_together():
    bench = make_oracle(depth=2)
    first = bench.submit({"a": 3}, new=[new()])
    second = bench.submit({"a": 3})
    assert bench.result(first).request_ids == []
    assert bench.result(second).sampled_token_ids == [EXPECTED[:1]]


def test_with_feeding_two_decodes_are_in_flight():
    bench = make_oracle(depth=2, feeds_tokens=True, record=True)
    first = bench.submit({"a": 6}, new=[new()])
    second = bench.submit({"a": 1})
    assert bench.result(first).sampled_token_ids == [EXPECTED[:1]]
    assert bench.result(second).sampled_token_ids == [EXPECTED[1:2]]
    assert [trace.batches_in_flight for trace in bench.oracle.collective_rpc("get_history")[0]] == [1, 2]


def test_more_batches_than_depth_are_refused():
    bench = make_oracle(depth=1)
    bench.submit({"a": 6}, new=[new()])
    with pytest.raises(InvariantError, match="depth = 1"):
        bench.submit({"a": 1})


def test_what_happens_to_a_plan_after_it_was_submitted_does_not_matter():
    bench = make_oracle()
    data = new()
    future = bench.submit({"a": 6}, new=[data])
    data.block_ids[0].clear()
    assert bench.result(future).sampled_token_ids == [EXPECTED[:1]]


def test_two_phases_forward_then_sample():
    bench = make_oracle(two_phase=True)
    assert bench.result(bench.submit({"a": 6}, new=[new()])) is None
    assert bench.oracle.sample_tokens(0, None).result().sampled_token_ids == [EXPECTED[:1]]
    with pytest.raises(InvariantError, match="no such step waits"):
        bench.oracle.sample_tokens(0, None)
    assert bench.result(bench.submit({}, finished=["a"])).request_ids == []


def test_out_of_order_writes_may_land_until_their_step_has_returned():
    bench = make_oracle(depth=2, feeds_tokens=True, in_order=False, verify=False)
    first = bench.submit({"a": 6}, new=[new()])
    second = bench.submit({"b": 6}, new=[new("b", tokens=[1, 2, 3, 4, 5, 6])], finished=["a"])
    bench.result(first)
    bench.result(second)
    right = MODEL.expected_tokens([1, 2, 3, 4, 5, 6], PARAMS)[:2]
    assert bench.run({"b": 1})["b"] == right[1:]


def test_out_of_order_a_block_given_away_before_its_step_returned_is_a_wrong_token():
    bench = make_oracle(depth=2, feeds_tokens=True, in_order=False, verify=False)
    bench.run({"b": 3}, new=[new("b", tokens=[1, 2, 3], blocks=(7,))])
    first = bench.submit({"a": 6}, new=[new()])
    second = bench.submit({"c": 8}, new=[new("c", tokens=range(1, 9))], finished=["a"])
    bench.result(first)
    bench.result(second)
    right = MODEL.expected_tokens(range(1, 9), PARAMS)
    third = bench.run({"c": 1}, deltas=[delta("c", blocks=[9], computed=8)])["c"]
    assert third != right[1:2]


def test_a_prefix_may_be_shared_once_the_step_that_wrote_it_has_returned():
    bench = make_oracle(depth=2, feeds_tokens=True)
    first = bench.submit({"a": 6}, new=[new()])
    second = bench.submit({"b": 2}, new=[new("b", blocks=(0, 5), computed=4)])
    bench.result(first)
    with pytest.raises(InvariantError, match=r"block 0, which step 0 writes; .* had not returned"):
        bench.result(second)


# -- time --


def test_steps_take_their_time_one_after_another():
    clock = VirtualClock()
    bench = make_oracle(depth=2, feeds_tokens=True, step_time=1.0, token_time=0.5, clock=clock)
    first = bench.submit({"a": 6}, new=[new()])
    second = bench.submit({"a": 1})
    assert not first.done()
    bench.result(first)
    assert clock.now() == 4.0
    bench.result(second)
    assert clock.now() == 5.5
    bench.clock.wait(deadline=10.0)
    bench.run({"a": 1})
    assert clock.now() == 11.5


def test_real_time_passes_too():
    clock = RealClock()
    bench = make_oracle(step_time=0.002, clock=clock)
    begin = clock.now()
    bench.run({"a": 6}, new=[new()])
    assert clock.now() - begin >= 0.002


# -- faults on demand --


def run_two(bench):
    """One step for requests a and b; the executor's output."""
    return bench.result(bench.submit({"a": 6, "b": 6}, new=[new(), new("b", blocks=(2, 3))]))


def test_fault_drop():
    output = run_two(make_oracle(faults=[Fault(kind="drop", request_id="a")]))
    assert (output.request_ids, output.sampled_token_ids, output.errors) == (["b"], [EXPECTED[:1]], {})


def test_fault_error():
    output = run_two(make_oracle(faults=[Fault(kind="error", request_id="a")]))
    assert (output.request_ids, output.sampled_token_ids) == (["b"], [EXPECTED[:1]])
    assert list(output.errors) == ["a"]


@pytest.mark.parametrize("kind", ["error", "reject"])
def test_fault_amid_a_prompt(kind):
    bench = make_oracle(faults=[Fault(kind=kind, request_id="a")])
    output = bench.result(bench.submit({"a": 3, "b": 6}, new=[new(), new("b", blocks=(2, 3))]))
    assert (output.request_ids, output.sampled_token_ids) == (["b"], [EXPECTED[:1]])
    assert list(output.errors) == (["a"] if kind == "reject" else [])  # the one waits until a is sampled


def test_fault_unknown():
    output = run_two(make_oracle(faults=[Fault(kind="unknown", request_id="ghost")]))
    assert output.request_ids == ["a", "b", "ghost"]


def test_fault_waits_for_its_step_and_happens_once():
    bench = make_oracle()
    bench.oracle.collective_rpc("inject", Fault(kind="drop", request_id="a", step=1))
    assert bench.run({"a": 6}, new=[new()]) == {"a": EXPECTED[:1]}
    assert bench.run({"a": 1}) == {}
    assert bench.run({"a": 1}, deltas=[delta(blocks=[7], computed=7)]) == {"a": EXPECTED[2:3]}


def test_fault_fail_is_one_step():
    bench = make_oracle(faults=[Fault(kind="fail")])
    with pytest.raises(Exception, match="set to fail at step 0"):
        run_two(bench)
    bench.oracle.check_health()


def test_fault_die_is_reported_once_and_for_good():
    bench = make_oracle(faults=[Fault(kind="die")])
    failures: list[BaseException] = []
    bench.oracle.register_failure_callback(failures.append)
    with pytest.raises(Exception, match="set to fail"):
        run_two(bench)
    assert len(failures) == 1
    with pytest.raises(EngineDeadError):
        bench.oracle.check_health()
    with pytest.raises(EngineDeadError):
        bench.submit({"a": 1})


@pytest.mark.parametrize("fault", [{"kind": "drop"}, {"kind": "fail", "request_id": "a"}, {"kind": "other"}])
def test_senseless_faults_are_refused(fault):
    with pytest.raises(ValueError, match="kind"):
        OracleSettings.model_validate_json(json.dumps({"faults": [fault]}))


# -- the rest of the interface --


def test_worker_calls():
    bench = make_oracle()
    bench.run({"a": 6}, new=[new()])
    assert bench.oracle.collective_rpc("get_request_ids") == [["a"]]
    bench.run({}, finished=["a", "never sent"])
    assert bench.oracle.collective_rpc("get_request_ids") == [[]]
    with pytest.raises(AttributeError, match="no_such_method"):
        bench.oracle.collective_rpc("no_such_method")


def test_memory_is_in_tokens_of_eight_bytes():
    bench = make_oracle(kv_memory=320, non_causal=True)
    (spec,) = bench.oracle.get_kv_cache_specs().values()
    assert bench.oracle.determine_available_memory() // spec.page_size_bytes == 10
    assert spec.non_causal


def test_logprobs_have_one_entry_per_token_with_the_sampled_one_first():
    bench = make_oracle()
    params = SamplingParams(temperature=0, logprobs=2)
    output = bench.result(bench.submit({"a": 6}, new=[new(params=params)]))
    (position,) = output.logprobs["a"]
    token = EXPECTED[0]
    assert position.token_ids == [token, token, (token + 1) % 256]
    assert position.logprobs == pytest.approx([-0.6931, -0.6931, -1.3863], abs=1e-4)


def test_after_shutdown_nothing_runs():
    bench = make_oracle()
    bench.oracle.shutdown()
    bench.oracle.shutdown()
    with pytest.raises(EngineDeadError):
        bench.submit({"a": 6}, new=[new()])


def test_eos_must_be_a_token():
    with pytest.raises(ValueError, match="below vocab_size = 16"):
        OracleSettings(vocab_size=16, eos_token_ids=(16,))
