"""What holds of every run, whatever the policy."""

from functools import cache, partial
from itertools import pairwise
from typing import Any

import pytest

from enginecore.scheduling import RequestView, SchedulerView, SchedulingPolicy, policy_component
from enginecore.settings import load_settings
from enginecore_lab.replay import replay
from enginecore_schedulers import enginecore_components
from tests.lab.experiments.engines import arrivals, drawn, latencies, run, simulated

POLICIES = [component.name for component in enginecore_components() if component.kind == "scheduler"]
BLOCKS = 160


@cache
def workload():
    """Prompts and outputs of very different lengths, which share beginnings; more than the memory holds."""
    return drawn(
        80,
        seed=5,
        arrivals={"kind": "gamma", "rate": 6.0, "cv": 2.0},
        prompt={"kind": "lognormal", "mean": 200, "sigma": 1.0, "maximum": 1000},
        output={"kind": "lognormal", "mean": 40, "sigma": 1.0, "maximum": 300},
        prefix={"levels": [{"branches": 4, "tokens": 64}]},
    )


def replayed(policy):
    """With every invariant of the engine checked in every step, too."""
    limits: dict[str, Any] = {
        "max_num_seqs": 16,
        "num_kv_blocks": BLOCKS,
        "max_model_len": "auto",
        "max_num_batched_tokens": 256,
    }
    engine = simulated(**limits, debug={"check_invariants": True})
    return run(workload(), engine, policy, reveal_lengths=False)


served = cache(replayed)


@pytest.mark.parametrize("policy", POLICIES)
class TestEveryPolicy:
    def test_what_comes_goes(self, policy):
        """Conservation: each request gets each of its tokens, once."""
        of = served(policy)
        assert [len(each.token_times) for each in of.requests] == [
            each.num_output_tokens for each in workload().requests
        ]
        assert all(each.is_complete for each in of.requests)
        assert of.steps.num_running[-1] == of.steps.num_waiting[-1] == 0
        assert of.steps.num_free_blocks[-1] == BLOCKS

    def test_nothing_comes_before_its_cause(self, policy):
        for each in served(policy).requests:
            assert each.first_scheduled is not None
            times = [each.arrival, each.first_scheduled, *each.token_times]
            assert all(earlier <= later for earlier, later in pairwise(times))
            assert each.first_scheduled < each.token_times[0]
            assert each.ended == each.token_times[-1]

    def test_steps_follow_one_another_within_their_limits(self, policy):
        steps = served(policy).steps
        assert all(a < b for a, b in zip(steps.started, steps.settled, strict=True) if a != b)
        assert all(end <= start for end, start in zip(steps.settled, steps.started[1:], strict=False))
        assert all(0 <= free <= BLOCKS for free in steps.num_free_blocks)
        assert max(steps.num_requests) <= 16
        tokens = [a + b for a, b in zip(steps.num_decodes, steps.num_prefill_tokens, strict=True)]
        assert max(tokens) <= 256

    def test_tokens_are_computed_once_unless_they_are_lost(self, policy):
        of = served(policy)
        for each in of.requests:
            pieces = sum(tokens for _, tokens in each.pieces)
            needed = each.request.num_prompt_tokens - each.num_cached_tokens
            assert pieces == needed if not each.num_preemptions else pieces > needed
        prefilled = sum(sum(tokens for _, tokens in each.pieces) for each in of.requests)
        assert prefilled == sum(of.steps.num_prefill_tokens)

    def test_the_engine_is_never_idle_while_somebody_could_run(self, policy):
        """Work conservation: between two steps with somebody left, no time passes."""
        steps = served(policy).steps
        for n, (end, start) in enumerate(zip(steps.settled, steps.started[1:], strict=False)):
            assert start == end or not steps.num_running[n] + steps.num_waiting[n]

    def test_littles_law(self, policy):
        """The mean number in the system is the rate times the mean time there: both sides counted for themselves."""
        of = served(policy)
        changes = sorted(
            [(each.arrival, 1) for each in of.requests] + [(each.token_times[-1], -1) for each in of.requests]
        )
        inside, area = 0, 0.0
        for (at, change), (until, _) in pairwise(changes):
            inside += change
            area += inside * (until - at)
        mean_inside = area / of.makespan
        rate, mean_time = len(of.requests) / of.makespan, sum(latencies(of)) / len(of.requests)
        assert mean_inside == pytest.approx(rate * mean_time, rel=1e-9)

    def test_a_against_a_is_exactly_nothing(self, policy):
        first, second = served(policy), replayed(policy)
        assert first.requests == second.requests
        assert first.steps == second.steps


CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "sleep")


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_asks_for_the_real_time(policy, monkeypatch):
    """Nor anything else, while requests run: from the end of the first to the end of the last."""
    asked: list[str] = []

    def watch(num_ended):
        monkeypatch.undo()
        for name in CLOCKS if num_ended < len(workload().requests) else ():
            monkeypatch.setattr(f"time.{name}", partial(asked.append, name))

    engine = simulated(max_num_seqs=16, max_model_len=8192, scheduler={"use": policy})
    replay(workload(), load_settings(engine, environ={}), virtual=True, on_progress=watch)
    assert asked == []


def test_a_policy_that_draws_numbers_moves_no_arrival():
    """Streams of random numbers are apart, and hidden lengths stay what they are."""
    made = [
        run(workload(), simulated(max_model_len=8192), "drawing", components=[DRAWING], seed=seed) for seed in (1, 2)
    ]
    of = [[each.arrival for each in each_run.requests] for each_run in made]
    assert of[0] == of[1] == arrivals(workload())
    assert [len(each.token_times) for each in made[0].requests] == [len(each.token_times) for each in made[1].requests]


class Drawing(SchedulingPolicy):
    """Uses up random numbers that it shares with everybody who uses the module."""

    def __init__(self, seed: int) -> None:
        import random

        self._draw = random.Random(seed).random
        random.seed(seed)

    def rank(self, request: RequestView, scheduler: SchedulerView) -> float:
        import random

        import numpy as np

        np.random.seed(int(random.random() * 1000))
        return self._draw() + random.random()


DRAWING = policy_component("drawing", Drawing)
