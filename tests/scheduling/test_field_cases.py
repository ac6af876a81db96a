"""Faults that schedulers of this kind really had, by number of the field case, with the right value asserted."""

import pytest

from enginecore.errors import InvalidRequestError
from enginecore.messages import FinishReason
from enginecore.scheduling import SchedulingPolicy
from enginecore_schedulers.fcfs import Fcfs
from tests.scheduling.harnesses import make_harness, make_request, terminal_of


class Urgent(SchedulingPolicy):
    """Smaller priority first; an urgent arrival displaces."""

    preemptive = True

    def rank(self, request, scheduler):
        return request.priority


def reason_of(harness, request_id):
    return harness.transcript[request_id].finish_reason


def steps_of(harness, request_id):
    """Numbers of the executed plans in which a request has tokens, counted from 0."""
    return [n for n, plan in enumerate(harness.plans) if request_id in plan.num_scheduled_tokens]


def sampled_at(harness):
    """Run to the end; how many tokens each request has been told after each plan."""
    told = []
    while harness.scheduler.has_requests():
        harness.step()
        told.append({story.request.request_id: len(story.token_ids) for story in harness.transcript.stories})
    return told


# -- 1: a prompt that can never fit must not freeze the queue --


@pytest.mark.parametrize(("length", "fits"), [(1002, False), (785, False), (784, True)])
def test_01_prompt_above_the_pool_is_refused_and_the_others_finish(length, fits):
    harness = make_harness(num_blocks=49, block_size=16, max_model_len=2048, max_num_batched_tokens=256)
    harness.add(make_request("long", length))
    for n in range(5):
        harness.add(make_request(f"short{n}", 20))
    harness.run()
    assert [reason_of(harness, f"short{n}") for n in range(5)] == [FinishReason.LENGTH] * 5
    terminal = terminal_of(harness, "long")
    if fits:
        assert (terminal.finish_reason, len(harness.transcript["long"].token_ids)) == (FinishReason.LENGTH, 1)
    else:
        assert terminal.finish_reason is FinishReason.ERROR
        assert f"{length} tokens" in str(terminal.error)
        assert "784" in str(terminal.error)


# -- 2: a lone request that outgrows the pool --


def test_02_lone_request_ends_by_length_where_the_pool_ends():
    harness = make_harness(num_blocks=4, block_size=4, max_model_len=256)
    harness.add(make_request("lone", 14, max_tokens=100))
    harness.run()
    # 16 slots hold all tokens but the last, which is never computed
    assert (reason_of(harness, "lone"), len(harness.transcript["lone"].token_ids)) == (FinishReason.LENGTH, 3)
    assert harness.scheduler.get_stats().num_preemptions == 0
    harness.add(make_request("next", 8, max_tokens=4))
    harness.run()
    assert len(harness.transcript["next"].token_ids) == 4


# -- 3: admission by the next chunk thrashes --


def test_03_two_long_prompts_do_not_evict_each_other_half_way():
    harness = make_harness(num_blocks=20, block_size=4, max_num_batched_tokens=16, enable_prefix_caching=False)
    harness.add(make_request("a", 56))
    harness.add(make_request("b", 56))
    harness.run()
    assert harness.scheduler.get_stats().num_preemptions == 0
    assert sum(plan.num_scheduled_tokens.get("a", 0) for plan in harness.plans) == 56 + 7
    assert len(steps_of(harness, "b")) >= 4  # it was cut into chunks


# -- 10: decodes behind one long prefill --


def test_10_decodes_advance_in_every_step_of_a_long_prefill():
    harness = make_harness(num_blocks=200, max_num_batched_tokens=8, max_model_len=512)
    harness.add(make_request("decode", 4, max_tokens=80))
    harness.step()
    harness.add(make_request("long", 400, max_tokens=2))
    harness.run()
    prefill = steps_of(harness, "long")
    assert len(prefill) >= 400 // 7
    assert all(harness.plans[step].num_scheduled_tokens.get("decode") == 1 for step in prefill[:57])


@pytest.mark.parametrize(("chunk", "soon"), [(4, True), (None, False)])
def test_10_short_prompt_behind_a_long_one_starts_soon_if_chunks_are_capped(chunk, soon):
    harness = make_harness(policy=Fcfs(prefill_chunk_size=chunk), num_blocks=200, max_num_batched_tokens=8,
                           max_model_len=512)  # fmt: skip
    harness.add(make_request("decode", 4, max_tokens=80))
    harness.add(make_request("long", 400, max_tokens=2))
    harness.step()
    harness.add(make_request("short", 4, max_tokens=2))
    told = sampled_at(harness)
    first = next(n for n, tokens in enumerate(told, 1) if tokens.get("short"))
    assert (first <= 4) == soon


# -- 13: scheduled, then the victim of the same step --


def test_13_the_victim_of_a_step_is_no_part_of_it():
    harness = make_harness(policy=Urgent(), num_blocks=5, block_size=4)
    harness.add(make_request("low", range(1, 8), priority=9))
    harness.step()
    harness.add(make_request("high", range(11, 19), priority=1))
    harness.step()  # two blocks each, all full, one is left; low stands first among the decodes
    plan = harness.submit()  # low takes it, and then high needs one
    assert plan
    assert plan.preempted_ids == ["low"]
    assert plan.num_scheduled_tokens == {"high": 1}
    assert [delta.request_id for delta in plan.deltas] == ["high"]
    assert harness.kv_cache_manager.num_free_blocks == 2
    harness.run()
    assert [len(harness.transcript[name].token_ids) for name in ("low", "high")] == [8, 8]


# -- 22: duplicate ids --


def test_22a_a_second_live_request_of_an_id_is_refused_and_the_first_goes_on():
    harness = make_harness()
    harness.add(make_request("a", 6))
    for _ in range(3):
        with pytest.raises(InvalidRequestError, match="'a'"):
            harness.add(make_request("a", 9))
        harness.step()
    harness.run()
    assert len(harness.transcript["a"].token_ids) == 8


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_22b_an_id_may_be_used_again_right_after_it_finished(depth):
    harness = make_harness(oracle={"depth": depth, "feeds_tokens": True})
    harness.add(make_request("a", 6, max_tokens=3))
    while harness.transcript["a"].is_open:
        harness.step()
    harness.add(make_request("a", range(50, 59), max_tokens=5))
    harness.run()
    assert [len(story.token_ids) for story in harness.transcript.stories] == [3, 5]


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("moves", range(6))
def test_22c_an_id_may_be_used_again_right_after_its_abort(depth, moves):
    harness = make_harness(oracle={"depth": depth, "feeds_tokens": True})
    harness.add(make_request("a", 6, max_tokens=20))
    for _ in range(moves):
        harness.submit()
        if harness.num_in_flight == depth and moves % 2:
            harness.settle()
    harness.abort(["a"])
    harness.add(make_request("a", range(50, 59), max_tokens=5))
    harness.run()
    assert len(harness.transcript["a"].token_ids) == 5


# -- 23: workers hear of finished requests --


@pytest.mark.parametrize("depth", [1, 2])
def test_23_finished_ids_reach_the_worker_once_although_nothing_is_scheduled(depth):
    harness = make_harness(oracle={"depth": depth, "feeds_tokens": True})
    harness.add(make_request("a", 6, max_tokens=3))
    harness.run()
    assert (harness.plans[-1].num_scheduled_tokens, harness.plans[-1].finished_ids) == ({}, ["a"])
    assert sum(plan.finished_ids.count("a") for plan in harness.plans) == 1
    harness.add(make_request("a", 6, max_tokens=3))
    harness.run()
    assert sum(plan.finished_ids.count("a") for plan in harness.plans) == 2


def test_23_workers_are_not_told_of_what_they_never_knew():
    harness = make_harness(max_num_seqs=1)
    harness.add(make_request("a", 6, max_tokens=3))
    harness.add(make_request("b", 6, max_tokens=3))
    harness.step()
    harness.abort(["b"])
    harness.run()
    assert [plan.finished_ids for plan in harness.plans if plan.finished_ids] == [["a"]]


# -- 24: abort at every point of the loop --


def moves_of(harness, depth):
    """All moves to the end, each a call: submit until the queue is full, then settle."""
    while harness.scheduler.has_requests() or harness.num_in_flight:
        yield
        if harness.num_in_flight == depth or not harness.submit():
            yield
            harness.settle()


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("victim", ["long", "queued", "short"])
def test_24_abort_at_every_point(depth, victim):
    aborted_while = set()
    for point in range(60):
        harness = make_harness(num_blocks=10, max_num_seqs=2, max_num_batched_tokens=8,
                               oracle={"depth": depth, "feeds_tokens": True})  # fmt: skip
        harness.add(make_request("long", 14, max_tokens=12))
        harness.add(make_request("short", 5, max_tokens=5))
        harness.add(make_request("queued", 9, max_tokens=3))
        for n, _ in enumerate(moves_of(harness, depth)):
            if n == point:
                request = next((r for r in harness.scheduler.unfinished_requests if r.request_id == victim), None)
                aborted_while.add(
                    "ended" if request is None else f"{request.status.name} {request.num_in_flight_tokens > 0}"
                )
                harness.abort([victim, "never seen"])
                harness.abort([victim, victim])
        harness.run()
        others = {"long", "queued", "short"} - {victim}
        assert {reason_of(harness, other) for other in others} == {FinishReason.LENGTH}
        assert len(harness.transcript["long"].token_ids) == 12 or victim == "long"
    assert {"RUNNING True", "ended"} <= aborted_while
    if victim == "queued":
        assert "WAITING False" in aborted_while


# -- 27: a preempted request keeps its own output --


@pytest.mark.parametrize(("depth", "feeds_tokens"), [(1, False), (2, False), (2, True), (4, True)])
def test_27_a_preempted_request_resumes_behind_its_own_output(depth, feeds_tokens):
    harness = make_harness(num_blocks=8, block_size=4, enable_prefix_caching=False,
                           oracle={"depth": depth, "feeds_tokens": feeds_tokens})  # fmt: skip
    harness.add(make_request("old", 8, max_tokens=20))
    harness.add(make_request("new", range(100, 108), max_tokens=20))
    harness.run()
    resumed = [new for plan in harness.plans for new in plan.new_requests if new.resumed]
    assert resumed
    assert all(new.request_id == "new" and new.num_prompt_tokens == 8 for new in resumed)
    assert all(len(new.token_ids) >= 8 + 5 for new in resumed)
    assert len(harness.transcript["new"].token_ids) == 20


@pytest.mark.parametrize("depth", [2, 4])
def test_27_tokens_in_flight_at_its_preemption_are_delivered_and_not_sampled_again(depth):
    harness = make_harness(oracle={"depth": depth, "feeds_tokens": True, "record": True})
    harness.add(make_request("a", 6, max_tokens=20))
    for _ in range(depth):
        harness.submit()
    assert harness.reset_prefix_cache(reset_running_requests=True)
    harness.run()
    (resumed,) = [new for plan in harness.plans for new in plan.new_requests if new.resumed]
    assert len(resumed.token_ids) == 6 + depth
    (history,) = harness.executor.collective_rpc("get_history")
    assert sum(len(trace.output.request_ids) for trace in history) == 20


# -- 30: max_tokens --


@pytest.mark.parametrize(("max_tokens", "given"), [(0, 0), (1, 1), (2, 2), (None, 64 - 20), (10**6, 64 - 20)])
def test_30_max_tokens_with_a_prompt_in_chunks(max_tokens, given):
    harness = make_harness(max_num_batched_tokens=8, max_model_len=64)
    harness.add(make_request("a", 20, max_tokens=max_tokens))
    harness.run()
    assert (reason_of(harness, "a"), len(harness.transcript["a"].token_ids)) == (FinishReason.LENGTH, given)
    assert len(steps_of(harness, "a")) == 3 + max(given - 1, 0)  # the last token is never computed
    assert [plan.num_scheduled_tokens["a"] for plan in harness.plans[:3]] == [8, 8, 4]


def test_30_stop_token_as_first_token():
    harness = make_harness(max_num_batched_tokens=8)
    first = harness.conditions.model.expected_output_of(make_request("a", 20)).token_ids[0]
    harness.add(make_request("a", 20, stop=(first,)))
    harness.run()
    terminal = terminal_of(harness, "a")
    assert (harness.transcript["a"].token_ids, terminal.finish_reason, terminal.stop_reason) == (
        [first], FinishReason.STOP, first,
    )  # fmt: skip


# -- 31: the executor leaves a row out, or invents one --


@pytest.mark.parametrize(("depth", "feeds_tokens"), [(1, False), (2, False), (2, True), (4, True)])
@pytest.mark.parametrize("kind", ["drop", "error", "unknown"])
@pytest.mark.parametrize("step", [0, 3])
def test_31_a_fault_of_one_row_ends_that_request_alone(depth, feeds_tokens, kind, step):
    harness = make_harness(
        oracle={
            "depth": depth,
            "feeds_tokens": feeds_tokens,
            "faults": [{"kind": kind, "request_id": "ghost" if kind == "unknown" else "bad", "step": step}],
        }
    )
    harness.add(make_request("good", 9))
    harness.add(make_request("bad", range(20, 29)))
    harness.run()  # also checks that no block is left behind
    assert reason_of(harness, "good") is FinishReason.LENGTH
    bad = terminal_of(harness, "bad")
    if kind == "unknown":
        assert bad.finish_reason is FinishReason.LENGTH
    else:
        assert bad.finish_reason is FinishReason.ERROR
        assert ("set to fail" if kind == "error" else "no row") in str(bad.error)
        assert len(harness.transcript["bad"].token_ids) < 8


# -- 32: accounting --


def test_32_hits_are_counted_once_per_request_whatever_is_hit_on_its_return():
    harness = make_harness(num_blocks=8, block_size=4)
    harness.add(make_request("first", 9, max_tokens=3))
    harness.run()
    harness.add(make_request("old", 9, max_tokens=20))
    harness.add(make_request("new", 9, max_tokens=20))
    harness.run()
    stats = harness.scheduler.get_stats()
    assert stats.num_preemptions > 0
    returned = [new for plan in harness.plans for new in plan.new_requests if new.resumed]
    assert any(new.num_computed_tokens > 8 for new in returned)  # a larger hit than at first
    assert (stats.prefix_cache_queries, stats.prefix_cache_hits) == (27, 16)
    assert [story.num_cached_tokens for story in harness.transcript.stories] == [0, 8, 8]


# -- 54: identical prompts side by side --


@pytest.mark.parametrize("caching", [True, False])
def test_54_identical_prompts_side_by_side_give_identical_tokens(caching):
    harness = make_harness(enable_prefix_caching=caching)
    for n in range(6):
        harness.add(make_request(f"r{n}", 13, max_tokens=6 + n))
        if n == 2:
            harness.step()
    harness.run()
    longest = harness.transcript["r5"].token_ids
    assert all(story.token_ids == longest[: len(story.token_ids)] for story in harness.transcript.stories)
    assert (harness.scheduler.get_stats().prefix_cache_hits > 0) == caching


def test_45_a_forced_reset_that_cannot_be_had_yet_changes_nothing():
    harness = make_harness(oracle={"depth": 2, "in_order": False})
    harness.add(make_request("a", 10, max_tokens=8))
    harness.add(make_request("b", 10, max_tokens=8))
    harness.submit()
    running = harness.scheduler.get_stats().num_running
    assert running == 2
    assert not harness.reset_prefix_cache(reset_running_requests=True)
    assert harness.scheduler.get_stats().num_running == running
    harness.settle()
    assert harness.reset_prefix_cache(reset_running_requests=True)
    harness.run()
