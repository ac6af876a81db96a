"""Field cases that need the engine around the scheduler: its limits, its refusals, and what it survives."""

import pytest

from enginecore.errors import ConfigurationError, EngineDeadError, InvalidRequestError
from enginecore.messages import FinishReason
from enginecore.plugin import hookimpl
from enginecore.scheduling import SchedulingPolicy, Split, policy_component
from enginecore_conformance.chaos import Chaos
from tests.equivalence.engines import OracleEngine
from tests.scheduling.harnesses import make_request


class NoPrefill(SchedulingPolicy):
    """Leaves no tokens to prompts."""

    def rank(self, request, scheduler):
        return request.arrival

    def split(self, scheduler):
        return Split(prefill=0, chunk=8, admit=8)


# -- 1 and 6: one truth about how long a request may be --


def test_01_the_pool_must_hold_one_longest_request():
    with pytest.raises(ConfigurationError, match=r"max_model_len = 2048.*784"):
        OracleEngine(num_kv_blocks=49, block_size=16, max_model_len=2048)


def test_06_the_advertised_limit_is_the_effective_one():
    engine = OracleEngine(oracle={"kv_memory": 128 * 8, "max_model_len": 1024}, max_model_len="auto",
                          kv_cache_memory=1.0)  # fmt: skip
    assert engine.info.max_model_len == 128
    with pytest.raises(InvalidRequestError, match=r"200 tokens.*128"):
        engine.add(make_request("a", 200))
    engine.add(make_request("b", 120, max_tokens=100))
    engine.run()
    assert len(engine.tokens["b"]) == 8


# -- 5: prompts around max_model_len --


@pytest.mark.parametrize("budget", [24, 128])
@pytest.mark.parametrize(
    ("length", "max_tokens", "given"),
    [(63, 5, 1), (63, None, 1), (63, 0, 0), (64, 0, 0), (64, 1, None), (64, None, None), (65, 0, None), (65, 5, None)],
)
def test_05_prompt_around_max_model_len(budget, length, max_tokens, given):
    engine = OracleEngine(max_model_len=64, max_num_batched_tokens=budget)
    request = make_request("a", length, max_tokens=max_tokens)
    if given is None:
        with pytest.raises(InvalidRequestError, match=f"{length} tokens.*64"):
            engine.add(request)
        assert not engine.get_output()
        return
    engine.add(request)
    engine.run()
    assert (engine.transcript["a"].finish_reason, len(engine.tokens["a"])) == (FinishReason.LENGTH, given)


# -- 8 and 9: limits that contradict each other --


@pytest.mark.parametrize(
    "settings", [{"enable_chunked_prefill": False}, {"oracle": {"non_causal": True}}], ids=["asked", "by the model"]
)
def test_08_prompts_that_fit_no_step_are_refused_at_start(settings):
    with pytest.raises(ConfigurationError, match=r"max_num_batched_tokens = 16 .* max_model_len = 64"):
        OracleEngine(max_model_len=64, max_num_batched_tokens=16, **settings)


def test_08_a_model_that_is_not_causal_shares_and_splits_nothing():
    engine = OracleEngine(oracle={"non_causal": True}, max_model_len=64, max_num_batched_tokens=64)
    assert (engine.info.enable_prefix_caching, engine.info.enable_chunked_prefill) == (False, False)
    engine.add(*[make_request(f"r{n}", 40, max_tokens=3) for n in range(4)])
    engine.run()
    assert (engine.num_cached_tokens, engine.num_chunks) == (0, 0)


def test_09_a_chunk_above_the_budget_is_refused_at_start():
    with pytest.raises(ConfigurationError, match=r"prefill_chunk_size = 64 .* max_num_batched_tokens = 32"):
        OracleEngine(max_num_batched_tokens=32, **{"scheduler.fcfs.prefill_chunk_size": 64})


# -- 11: no knob without effect --

BUSY = {"max_num_batched_tokens": 32, "max_num_seqs": 4, "block_size": 4, "max_model_len": 32}


def shape(**settings):
    """Scheduled counts of every step of one workload."""
    engine = OracleEngine(**{**BUSY, **settings})
    engine.add(*[make_request(f"r{n}", 22, max_tokens=6) for n in range(6)])
    engine.run()
    return [trace.plan.num_scheduled_tokens for trace in engine.history]


@pytest.mark.parametrize(
    "knob",
    [
        {"max_num_batched_tokens": 16},
        {"max_num_seqs": 2},
        {"enable_prefix_caching": False},
        {"enable_chunked_prefill": False},
        {"scheduler.fcfs.prefill_chunk_size": 8},
        {"num_kv_blocks": 10},
        {"block_size": 8},
        {"max_model_len": 25},
    ],
    ids=lambda knob: next(iter(knob)),
)
def test_11_every_knob_changes_what_is_scheduled(knob):
    assert shape(**knob) != shape()


@pytest.mark.parametrize("knob", ["scheduler.fcfs.max_num_partial_prefills", "scheduler.max_long_partial_prefills"])
def test_11_an_unknown_knob_is_refused(knob):
    with pytest.raises(ConfigurationError, match=knob.rpartition(".")[2]):
        OracleEngine(**{knob: 2})


# -- 22, 24: ids and aborts through the engine --


@pytest.mark.parametrize("oracle", [{}, {"depth": 2, "feeds_tokens": True}])
def test_22_an_abort_of_the_first_never_hits_the_second(oracle):
    engine = OracleEngine(oracle=oracle)
    engine.add(make_request("a", 6, max_tokens=50))
    engine.get_output()
    with pytest.raises(InvalidRequestError, match="'a'"):
        engine.client.add_request(make_request("a", 6))
    engine.abort("a", "a", "never seen")
    engine.add(make_request("a", range(70, 80), max_tokens=5))
    engine.run()
    assert len(engine.tokens["a"]) == 5


# -- 29: an empty prompt --


def test_29_an_empty_prompt_is_refused_alone():
    engine = OracleEngine()
    engine.add(make_request("good", 6))
    with pytest.raises(InvalidRequestError, match=r"'empty'.*empty"):
        engine.add(make_request("empty", []))
    engine.run()
    assert list(engine.tokens) == ["good"]


# -- 31: rows that are missing or too many --


@pytest.mark.parametrize("oracle", [{}, {"depth": 2, "feeds_tokens": True}, {"two_phase": True}])
def test_31_the_engine_survives_a_runner_that_drops_and_invents_rows(oracle):
    faults = [
        {"kind": "drop", "request_id": "dropped", "step": 2},
        {"kind": "unknown", "request_id": "ghost", "step": 2},
        {"kind": "error", "request_id": "failed", "step": 3},
    ]
    engine = OracleEngine(oracle={**oracle, "faults": faults})
    engine.add(*[make_request(name, 9) for name in ("dropped", "good", "failed")])
    engine.run()
    reasons = {story.request.request_id: story.finish_reason for story in engine.transcript.stories}
    assert reasons == {"dropped": FinishReason.ERROR, "good": FinishReason.LENGTH, "failed": FinishReason.ERROR}


# -- 32: observers and metrics --


class Broken:
    """Observers that fail each time."""

    calls = 0

    @hookimpl
    def enginecore_step_finished(self, record):
        self.calls += 1
        raise RuntimeError("a broken counter")

    @hookimpl
    def enginecore_request_finished(self, record):
        self.calls += 1
        assert record.num_cached_tokens >= 0
        raise RuntimeError("a broken counter")


def test_32_a_failing_observer_never_stops_outputs():
    observer = Broken()
    engine = OracleEngine(observer=observer, num_kv_blocks=8, block_size=4, max_model_len=32)
    engine.add(*[make_request(f"r{n}", 9, max_tokens=20) for n in range(3)])
    engine.run()
    assert engine.stats.num_preemptions > 0
    assert observer.calls == len(engine.history) + 3


# -- 33: no progress --


def test_33_a_scheduler_that_makes_no_progress_is_named_with_request_and_limit():
    engine = OracleEngine(components=[policy_component("no_prefill", NoPrefill)], **{"scheduler.use": "no_prefill"})
    engine.add(make_request("odd", 6))
    with pytest.raises(EngineDeadError) as caught:
        engine.run()
    assert all(word in str(caught.value) for word in ("no progress", "no_prefill", "'odd'", "max_num_batched_tokens"))


# -- 45: cache reset while requests run --


@pytest.mark.parametrize(("depth", "feeds_tokens"), [(1, False), (2, False), (2, True), (4, True)])
@pytest.mark.parametrize("point", [0, 1, 2, 3, 4, 6, 9])
def test_45_reset_at_each_point_of_a_decode(depth, feeds_tokens, point):
    engine = OracleEngine(oracle={"depth": depth, "feeds_tokens": feeds_tokens}, block_size=4, max_num_batched_tokens=8)
    engine.add(make_request("a", 11, max_tokens=9), make_request("b", range(60, 67), max_tokens=9))
    for _ in range(point):
        engine.get_output()
    running = engine.stats.num_running
    assert engine.client.call_utility("reset_prefix_cache") is (running == 0)
    assert engine.stats.num_preemptions == 0
    assert engine.client.call_utility("reset_prefix_cache", True) is True
    assert engine.stats.num_cached_blocks == 0
    assert engine.stats.num_preemptions == running
    engine.run()
    assert [len(tokens) for tokens in engine.tokens.values()] == [9, 9]
    if 0 < point < 5:  # later, all tokens may be in flight already
        assert any(new.resumed for trace in engine.history for new in trace.plan.new_requests)


# -- Any policy, the same tokens --


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("oracle", [{}, {"depth": 2}, {"depth": 4, "feeds_tokens": True}])
def test_a_policy_without_sense_gives_the_same_tokens(seed, oracle):
    engine = OracleEngine(
        oracle=oracle, components=[policy_component("chaos", Chaos)], num_kv_blocks=16, block_size=4, max_model_len=64,
        max_num_batched_tokens=16, max_num_seqs=4, **{"scheduler.use": "chaos", "scheduler.chaos.seed": seed},
    )  # fmt: skip
    engine.add(*[make_request(f"r{n}", range(n % 3, n % 3 + 9 + n), max_tokens=12) for n in range(12)])
    engine.run()
    assert engine.stats.num_preemptions > 0
    assert engine.num_cached_tokens > 0
