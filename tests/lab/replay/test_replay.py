"""One driver: what it sends when, and what it writes down."""

import gc
from functools import partial
from threading import Event, Thread
from typing import Any

import msgspec
import pytest

from enginecore.errors import ConfigurationError
from enginecore.messages import FinishReason
from enginecore_lab.replay import replay, time_alone
from tests.lab.making import asked, on_oracle, virtually, workload


def of(run, request_id) -> Any:
    return next(each for each in run.requests if each.request.request_id == request_id)


def test_every_token_has_its_time():
    run = virtually([asked("a", 0.25, output=3), asked("b", 0.5, output=2)])
    a, b = of(run, "a"), of(run, "b")
    assert (a.arrival, a.first_scheduled, list(a.token_times), a.ended) == (0.25, 0.25, [1.25, 2.25, 3.25], 3.25)
    assert (b.arrival, b.first_scheduled, list(b.token_times), b.ended) == (0.5, 1.25, [2.25, 3.25], 3.25)
    assert a.finish_reason is b.finish_reason is FinishReason.LENGTH
    assert run.makespan == 3.25
    assert run.virtual


def test_requests_keep_the_workloads_order():
    run = virtually([asked("late", 5.0), asked("early", 0.0)])
    assert [each.request.request_id for each in run.requests] == ["late", "early"]


def test_pieces_are_prompt_tokens_by_step_and_decodes_are_none():
    run = virtually([asked("a", prompt=20, output=3), asked("b", 1.5, prompt=1)], on_oracle(max_num_batched_tokens=8))
    assert of(run, "a").pieces == [(1, 8), (2, 8), (3, 4)]
    assert of(run, "b").pieces == [(3, 1)]
    steps = run.steps
    assert list(steps.num_prefill_tokens)[:4] == [8, 8, 5, 0]
    assert list(steps.num_decodes)[:4] == [0, 0, 0, 2]
    assert list(steps.num_requests)[:4] == [1, 1, 2, 2]
    assert list(steps.started)[:3] == [0.0, 1.0, 2.0]
    assert list(steps.settled)[:3] == [1.0, 2.0, 3.0]


def test_what_is_recomputed_is_a_piece_and_the_preemption_counts():
    settings = on_oracle(num_kv_blocks=4, block_size=4, max_num_batched_tokens=64, enable_prefix_caching=False)
    run = virtually([asked("a", prompt=7, output=6), asked("b", 0.5, prompt=7, output=6)], settings)
    b = of(run, "b")
    assert (of(run, "a").num_preemptions, b.num_preemptions) == (0, 1)
    assert len(b.pieces) == 2
    assert b.pieces[0][1] == 7
    assert b.pieces[1][1] == 7 + len([time for time in b.token_times if time <= of(run, "a").ended])
    assert len(b.token_times) == 6
    assert (of(run, "a").preempted_at, b.preempted_at) == ([], [2.0])


def test_deadlines_count_from_when_a_request_is_meant_to_come():
    """All wait for the first one; the last one's deadline comes before that of the one before it."""
    terms = {"a": (0.0, 9.0), "b": (0.25, 4.0), "c": (2.5, 1.0)}
    requests = [asked(name, at, output=3, ttft_slo=slo) for name, (at, slo) in terms.items()]
    run = virtually(requests, on_oracle(scheduler={"use": "edf"}, max_num_seqs=1))
    assert [of(run, name).first_scheduled for name in "acb"] == [0.0, 3.0, 6.0]


def test_cached_prompt_tokens_are_recorded():
    shared: dict[str, Any] = {"prompt": 40, "hash_ids": (1, 2, 3)}
    run = virtually(workload([asked("a", **shared), asked("b", 10.0, **shared)], block_size=16))
    assert (of(run, "a").num_cached_tokens, of(run, "b").num_cached_tokens) == (0, 32)
    assert of(run, "b").pieces[0][1] == 8


class TestFailures:
    def test_a_request_that_the_engine_refuses_is_recorded_as_failed(self):
        run = virtually([asked("long", 1.0, prompt=90), asked("a")], on_oracle(max_model_len=64))
        refused = of(run, "long")
        assert (refused.finish_reason, refused.ended, refused.first_scheduled) == (FinishReason.ERROR, 1.0, None)
        assert "may have 63" in refused.error
        assert not refused.is_complete
        assert of(run, "a").is_complete

    def test_a_fault_of_one_request_is_recorded_with_the_tokens_that_it_got(self):
        fault = {"kind": "error", "request_id": "a", "step": 3}
        run = virtually([asked("a"), asked("b")], on_oracle(oracle={"faults": [fault]}))
        failed = of(run, "a")
        assert (failed.finish_reason, len(failed.token_times)) == (FinishReason.ERROR, 2)
        assert failed.error
        assert of(run, "b").is_complete

    def test_what_is_not_over_when_time_is_up_is_unfinished(self):
        run = virtually([asked("a", output=100), asked("later", 50.0), asked("b", output=2)], until=10.0)
        a, later = of(run, "a"), of(run, "later")
        assert (a.ended, a.finish_reason, len(a.token_times)) == (None, None, 10)
        assert (later.arrival, later.ended, later.first_scheduled) == (50.0, None, None)
        assert of(run, "b").is_complete

    def test_a_turn_follows_one_that_failed(self):
        turns = [asked("one", prompt=90), asked("two", after="one", delay=2.0)]
        run = virtually(workload(turns, loop="partly open"), on_oracle(max_model_len=64))
        assert of(run, "two").arrival == 2.0
        assert of(run, "two").is_complete


class TestLoops:
    def test_a_turn_comes_its_delay_after_the_end_of_the_one_before(self):
        turns = [asked("one", 1.0, output=3), asked("two", after="one", delay=0.5), asked("three", after="two")]
        run = virtually(workload(turns, loop="partly open"))
        assert of(run, "one").ended == 4.0
        assert of(run, "two").arrival == 4.5
        assert of(run, "three").arrival == of(run, "two").ended

    def test_clients_of_a_closed_loop_send_one_at_a_time(self):
        requests = [asked(f"r{i}", 100.0 * i, output=i + 1) for i in range(5)]
        run = virtually(workload(requests, loop="closed", concurrency=2, think_time=0.25))
        arrivals = [each.arrival for each in run.requests]
        ends = [each.ended or 0.0 for each in run.requests]
        assert arrivals[:2] == [0.0, 0.0]
        assert sorted(arrivals[2:]) == sorted(end + 0.25 for end in sorted(ends)[:3])
        for at in arrivals:
            assert sum(start <= at < end for start, end in zip(arrivals, ends, strict=True)) <= 2

    @pytest.mark.parametrize(
        ("requests", "fields", "why"),
        [
            ([], {}, "no requests"),
            ([asked("a"), asked("a")], {}, "two requests with the id 'a'"),
            ([asked("a"), asked("b", after="a")], {}, "'partly open'"),
            ([asked("b", after="a"), asked("a")], {"loop": "partly open"}, "does not stand before it"),
            ([asked("a")], {"loop": "closed"}, "concurrency = 0"),
            ([asked("a"), asked("b", after="a")], {"loop": "closed", "concurrency": 1}, "partly open loop"),
        ],
    )
    def test_a_workload_that_is_not_sound_is_refused(self, requests, fields, why):
        with pytest.raises(ConfigurationError, match=why):
            virtually(workload(requests, **fields))


class TestClocks:
    def test_an_executor_that_takes_no_virtual_time_is_refused_at_its_first_step(self):
        with pytest.raises(ConfigurationError, match="'oracle' took no time"):
            virtually([asked("a", output=1000)], on_oracle(0.0))

    def test_the_same_driver_runs_in_real_time(self):
        requests = [asked("a", output=3), asked("b", 0.03, output=2)]
        run = replay(workload(requests), on_oracle(0.01), virtual=False)
        a, b = run.requests
        assert not run.virtual
        assert all(each.is_complete for each in run.requests)
        assert (a.arrival, b.arrival) == (0.0, 0.03)
        assert 0.01 <= a.token_times[0] < a.token_times[1] < a.token_times[2]
        assert b.first_scheduled is not None
        assert b.first_scheduled >= 0.03

    def test_in_real_time_a_latency_counts_from_when_a_request_was_meant_to_come(self):
        """Although a step lasts longer than the gap: no coordinated omission."""
        requests = [asked("a", prompt=600, output=1), asked("b", 0.01, output=1)]
        run = replay(workload(requests), on_oracle(0.0, token_time=0.0005), virtual=False)
        b = run.requests[1]
        assert b.arrival == 0.01
        assert b.token_times[0] - b.arrival >= 0.25

    def test_in_real_time_the_engine_is_warmed_up_and_nothing_of_it_is_left(self):
        shared: dict[str, Any] = {"prompt": 40, "hash_ids": (1, 2, 3)}
        refused = asked("refused", prompt=5000)
        requests = [asked("a", **shared), refused, asked("b", 0.05, **shared)]
        run = replay(workload(requests, block_size=16), on_oracle(0.001), virtual=False)
        assert [of(run, name).num_cached_tokens for name in "ab"] == [0, 32]
        assert [each.is_complete for each in run.requests] == [True, False, True]
        assert run.steps.step[0] > 4
        assert run.steps.started[0] < 0.05

    def test_a_virtual_run_reads_no_other_clock(self, monkeypatch):
        """From its first step to its last."""
        asked_for: list[str] = []

        def patch(num_ended):
            monkeypatch.undo()
            if num_ended < 3:
                for name in (
                    "time",
                    "time_ns",
                    "monotonic",
                    "monotonic_ns",
                    "perf_counter",
                    "perf_counter_ns",
                    "sleep",
                ):
                    monkeypatch.setattr(f"time.{name}", partial(asked_for.append, name))

        run = virtually([asked("a", output=1), asked("b", output=200), asked("c", 300.0)], on_progress=patch)
        assert run.makespan == 304.0
        assert asked_for == []


def test_progress_is_told_how_many_requests_have_ended():
    seen: list[int] = []
    virtually([asked("a", output=2), asked("b", output=4)], on_progress=seen.append)
    assert seen == [1, 2]


def test_the_same_run_twice_is_the_same_to_the_bit():
    requests = [asked(f"r{i}", 0.3 * i, prompt=5 + i, output=1 + i % 7) for i in range(40)]
    first, second = virtually(requests), virtually(requests)
    assert first.requests == second.requests
    assert first.steps == second.steps


def test_a_run_says_what_was_in_force():
    run = virtually([asked("a")], on_oracle(scheduler={"use": "sjf"}))
    assert run.settings["scheduler"]["use"] == "sjf"
    assert run.info.components["scheduler"] == "sjf"
    assert run.info.num_blocks == 4096


class TestAlone:
    def test_it_is_what_a_request_takes_with_the_engine_to_itself(self):
        """Pieces of 8, then a step per token after the first; nothing is cached, nobody is waited for."""
        requests = [asked("a", prompt=20, output=5), asked("b", prompt=20, output=5, hash_ids=(1, 2)), asked("c")]
        alone = time_alone(workload(requests, block_size=16), on_oracle(max_num_batched_tokens=8), virtual=True)
        assert [alone(each) for each in requests] == [7.0, 7.0, 4.0]

    def test_one_that_fails_even_so_is_said(self):
        with pytest.raises(ConfigurationError, match=r"'long' fails even alone: .*may have 63"):
            time_alone(workload([asked("long", prompt=90)]), on_oracle(max_model_len=64), virtual=True)


@pytest.mark.parametrize("virtual", [True, False], ids=["virtual", "real"])
def test_prompts_beyond_the_model_are_refused_without_being_made(virtual):
    """A trillion tokens would not fit into memory, and need not."""
    run = replay(
        workload([asked("huge", prompt=10**12), asked("a", prompt=4)]), on_oracle(step_time=1e-3), virtual=virtual
    )
    huge, a = run.requests
    assert (huge.finish_reason, a.finish_reason) == (FinishReason.ERROR, FinishReason.LENGTH)
    assert str(huge.error).startswith("request 'huge': the prompt has 1000000000000 tokens and may have ")


def test_replays_in_threads_leave_the_garbage_collector_as_it_was():
    """One begins while another runs, and ends after it."""
    before = gc.get_threshold()
    first_runs, second_runs, first_is_over = Event(), Event(), Event()
    waits = {"first": (first_runs, second_runs), "second": (second_runs, first_is_over)}

    def run(name):
        begun, other = waits[name]

        def on_progress(done):
            begun.set()
            other.wait(60)

        virtually([asked("a")], on_progress=on_progress)

    first, second = (Thread(target=run, args=(name,)) for name in waits)
    first.start()
    assert first_runs.wait(60)
    second.start()
    first.join(60)
    first_is_over.set()
    second.join(60)
    assert gc.get_threshold() == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"arrival": float("nan")},
        {"arrival": float("inf")},
        {"arrival": -1.0},
        {"delay": float("nan")},
        {"num_prompt_tokens": 0},
        {"num_output_tokens": 0},
    ],
)
def test_numbers_that_no_loader_lets_through_are_refused(wrong):
    """Time that is not a number never comes: the replay would not end."""
    request = msgspec.structs.replace(asked("a"), **wrong)
    with pytest.raises(ConfigurationError, match=f"request 'a': {next(iter(wrong))} must be finite and at least"):
        virtually([request])


def test_think_time_must_be_a_number():
    with pytest.raises(ConfigurationError, match="think_time must be finite and at least 0, got nan"):
        virtually(workload([asked("a"), asked("b")], loop="closed", concurrency=1, think_time=float("nan")))
