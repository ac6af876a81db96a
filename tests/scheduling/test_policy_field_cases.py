"""Field cases of order, victims and eviction, by number: what is decided by whom, and what is promised."""

import pytest

from enginecore.interfaces import VictimChoice
from enginecore.kv_cache import KeyedOrder
from enginecore.messages import FinishReason
from enginecore.plugin import Component
from enginecore.scheduling import SchedulingPolicy, policy_component
from tests.equivalence.engines import OracleEngine
from tests.scheduling.harnesses import make_harness, make_request


def admissions(harness):
    """Who was admitted, in order, returns included."""
    return [new.request_id for plan in harness.plans for new in plan.new_requests]


def first_step_of(harness, request_id):
    return next(n for n, plan in enumerate(harness.plans, 1) if request_id in plan.num_scheduled_tokens)


# -- 12: one that does not fit stands before others that would --


class Skipping(SchedulingPolicy):
    """By priority, then first come, first served; but who does not fit lets others pass a few times.


    Args:
        patience: How often.
    """

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.passed = 0

    def rank(self, request, scheduler):
        return request.priority

    def choose(self, scheduler):
        first, *others = scheduler.waiting.first(8)
        fitting = next((r for r in others if self.fits(r, scheduler)), None)
        if self.fits(first, scheduler) or fitting is None or self.passed >= self.patience:
            self.passed = 0
            return first
        self.passed += 1
        return fitting

    def fits(self, request, scheduler):
        tokens = request.num_prompt_tokens + request.num_output_tokens
        return tokens <= scheduler.num_free_blocks * scheduler.block_size


def heavy_and_light(policy):
    """`holder` leaves 4 of 12 blocks free; heavy needs 6, and one light prompt after another needs 1."""
    harness = make_harness(policy=policy, num_blocks=12, block_size=4, max_num_batched_tokens=64, max_num_seqs=2)
    harness.add(make_request("holder", 29, max_tokens=4))
    harness.step()
    harness.add(make_request("heavy", range(100, 124), max_tokens=1))
    for n in range(6):
        harness.add(make_request(f"light{n}", range(200 + n * 5, 203 + n * 5), max_tokens=1))
    return harness


def test_12_under_fcfs_nobody_overtakes_one_that_does_not_fit():
    harness = heavy_and_light(None)
    harness.run()
    assert admissions(harness) == ["holder", "heavy", *[f"light{n}" for n in range(6)]]
    assert first_step_of(harness, "heavy") == 5  # the holder ended in step 4


@pytest.mark.parametrize(("patience", "passed"), [(0, 0), (2, 2), (100, 3)])  # 3: the holder has ended
def test_12_a_policy_may_let_others_pass_and_bound_it(patience, passed):
    harness = heavy_and_light(Skipping(patience))
    harness.run()
    order = admissions(harness)
    assert order[0] == "holder"
    assert order.index("heavy") == 1 + passed
    assert len(order) == 8


def test_12_a_step_that_preempted_admits_nobody_and_the_next_one_does():
    harness = make_harness(num_blocks=6, block_size=4)
    harness.add(make_request("old", range(1, 9), max_tokens=9))
    harness.add(make_request("young", range(11, 27), max_tokens=9))
    harness.step()
    harness.add(make_request("light", range(31, 33), max_tokens=2))
    preempting = harness.submit()
    assert preempting is not None
    assert (preempting.preempted_ids, preempting.new_requests) == (["young"], [])
    assert harness.kv_cache_manager.num_free_blocks == 3  # enough for `light`
    harness.settle()
    harness.add(make_request("lighter", [41], max_tokens=2))
    harness.run()
    assert admissions(harness) == ["old", "young", "young", "light", "lighter"]


# -- 15: seats bind, not memory --


class Urgent(SchedulingPolicy):
    preemptive = True

    def rank(self, request, scheduler):
        return request.priority


class Patient(Urgent):
    preemptive = False


def seats_taken(policy, depth=1):
    """Two long requests of low priority hold both seats, memory is plentiful, and an urgent one arrives."""
    harness = make_harness(policy=policy, max_num_seqs=2, num_blocks=64,
                           oracle={"depth": depth, "feeds_tokens": depth > 1})  # fmt: skip
    for n in range(2):
        harness.add(make_request(f"low{n}", range(n * 50, n * 50 + 9), max_tokens=30, priority=5 + n))
    for _ in range(6):
        harness.step()
    harness.add(make_request("urgent", range(200, 209), max_tokens=3, priority=0))
    return harness


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_15_an_urgent_request_gets_a_seat_in_the_very_next_step(depth):
    harness = seats_taken(Urgent(), depth)
    plan = harness.submit() or (harness.settle() and harness.submit())
    assert plan
    assert [new.request_id for new in plan.new_requests] == ["urgent"]
    assert plan.num_scheduled_tokens["urgent"] == 9
    assert plan.preempted_ids == ["low1"]
    assert "low1" not in plan.num_scheduled_tokens
    harness.run()  # every token of the victim is right, and every block came back
    assert len(harness.transcript["low1"].token_ids) == 30
    assert harness.scheduler.get_stats().num_preemptions == 1


def test_15_under_a_policy_that_is_not_preemptive_it_waits_for_a_seat():
    harness = seats_taken(Patient())
    harness.run()
    assert harness.scheduler.get_stats().num_preemptions == 0
    assert first_step_of(harness, "urgent") == 31  # after 30 steps of the others


# -- 16: the place of a preempted request --


def test_16_a_preempted_request_stands_before_all_that_came_after_it_and_finds_its_blocks_warm():
    harness = make_harness(num_blocks=8, block_size=4)
    harness.add(make_request("old", range(1, 9), max_tokens=5))
    harness.add(make_request("victim", range(11, 31), max_tokens=9))
    harness.step()
    harness.add(make_request("new", range(41, 43), max_tokens=2))
    harness.run()
    assert harness.scheduler.get_stats().num_preemptions == 1
    assert admissions(harness) == ["old", "victim", "victim", "new"]
    (returned,) = [new for plan in harness.plans for new in plan.new_requests if new.resumed]
    assert returned.num_computed_tokens == 20  # of 21


@pytest.mark.parametrize(
    ("priority", "then"), [(0.0, ["heavy", "victim"]), (-1.0, ["victim", "heavy"])], ids=["equal", "better"]
)
def test_16_rank_decides_and_then_arrival_whoever_ran_before(priority, then):
    """`heavy` came first and has never run, since it did not fit."""
    harness = make_harness(policy=Skipping(patience=1), num_blocks=8, block_size=4)
    harness.add(make_request("old", range(1, 9), max_tokens=5, priority=-9))
    harness.add(make_request("heavy", range(50, 75), max_tokens=2))
    harness.step()
    harness.add(make_request("victim", range(11, 31), max_tokens=9, priority=priority))
    harness.run()
    assert harness.scheduler.get_stats().num_preemptions == 1
    assert admissions(harness) == ["old", "victim", *then]


def test_16_returns_are_bounded_however_tight_the_pool():
    """Whoever returns gets blocks for all that is known of it, so each return makes at least one block of progress."""
    harness = make_harness(num_blocks=12, block_size=4, max_num_batched_tokens=16)
    for n in range(6):
        harness.add(make_request(f"r{n}", range(n * 30, n * 30 + 9), max_tokens=24))
    harness.run()
    preemptions = harness.scheduler.get_stats().num_preemptions
    assert 0 < preemptions <= 6 * 24 // 4


# -- 17: starvation --


class Ageing(SchedulingPolicy):
    """A second of waiting is worth `aging` of priority."""

    def __init__(self, aging: float) -> None:
        self.aging = aging

    def rank(self, request, scheduler):
        return request.priority + self.aging * request.arrival


def steps_until_the_cold_one_runs(aging, stream=300):
    """One seat, one urgent request per step, and one of priority 10 that came before all of them."""
    harness = make_harness(policy=Ageing(aging), max_num_seqs=1, oracle={"step_time": 1.0})
    harness.add(make_request("first", [1, 2, 3], max_tokens=1))
    harness.add(make_request("cold", [4, 5, 6], max_tokens=1, priority=10))
    for n in range(stream):
        harness.step()
        harness.add(make_request(f"urgent{n}", [7 + n % 200, 8, 9], max_tokens=1))
    harness.run()
    return first_step_of(harness, "cold")


def test_17_ageing_bounds_the_wait_under_a_steady_stream():
    assert steps_until_the_cold_one_runs(aging=0.1) == 101  # priority 10 is worth 100 seconds
    assert steps_until_the_cold_one_runs(aging=1.0) == 11


def test_17_static_priorities_may_starve():
    assert steps_until_the_cold_one_runs(aging=0.0) == 302


# -- 140: one choice, without a fork of the scheduler --


class NewestFirst(SchedulingPolicy):
    def rank(self, request, scheduler):
        return -request.seq


class Small(SchedulingPolicy):
    def rank(self, request, scheduler):
        return request.arrival

    def admit(self, request, scheduler):
        return "too long for this engine" if request.num_prompt_tokens > 40 else None


class Youngest(VictimChoice):
    def choose(self, candidates, needy, scheduler):
        return min(candidates, key=lambda request: request.num_output_tokens)


class DeepestFirst(KeyedOrder):
    def key(self, content):
        return -content.position


ONE_CHOICE = {
    "order": (policy_component("mine", NewestFirst), {"scheduler.use": "mine"}),
    "admission": (policy_component("mine", Small), {"scheduler.use": "mine"}),
    "victim": (
        Component(kind="victim", name="mine", factory=lambda settings, context: Youngest()),
        {"victim.use": "mine"},
    ),
    "eviction": (
        Component(kind="eviction", name="mine", factory=lambda settings, context: DeepestFirst()),
        {"eviction.use": "mine"},
    ),
}


def plans_with(*components, **settings):
    """A workload that lacks seats, memory and cache: what was planned, and how requests ended."""
    engine = OracleEngine(
        components=components, block_size=4, num_kv_blocks=24, max_model_len=80, max_num_seqs=4,
        max_num_batched_tokens=32, **settings,
    )  # fmt: skip
    for n in range(3):
        engine.add(*[make_request(f"{n}-{length}", length, max_tokens=20) for length in (9, 45, 18, 5, 30)])
        engine.get_output()
    engine.run()
    assert engine.stats.num_preemptions > 0
    reasons = [story.finish_reason for story in engine.transcript.stories]
    return [trace.plan for trace in engine.history], reasons


@pytest.mark.parametrize("choice", ONE_CHOICE)
@pytest.mark.parametrize("manager", ["paged", "radix"])
def test_140_one_choice_is_one_small_component(choice, manager):
    component, settings = ONE_CHOICE[choice]
    plans, reasons = plans_with(**{"kv_cache_manager.use": manager})
    other_plans, other_reasons = plans_with(component, **settings, **{"kv_cache_manager.use": manager})
    assert other_plans != plans
    assert reasons.count(FinishReason.LENGTH) == 15
    assert other_reasons.count(FinishReason.LENGTH) == (12 if choice == "admission" else 15)
