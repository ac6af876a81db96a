"""A policy may admit nobody until a time, or until something happens, and the engine neither spins nor dies of it."""

import math

import pytest

from enginecore.clock import RealClock, VirtualClock
from enginecore.errors import EngineDeadError, InvariantError
from enginecore.scheduling import Delay, SchedulingPolicy, policy_component
from tests.core.engines import make_core, request, run
from tests.scheduling.harnesses import make_harness, make_request


class NotBefore(SchedulingPolicy):
    """Admits each request at the time that it names, and remembers when it was asked."""

    def __init__(self, pairs: bool = False) -> None:
        self.pairs = pairs
        self.asked: list[float] = []

    def rank(self, request, scheduler):
        return request.hints.get("not_before", 0.0)

    def choose(self, scheduler):
        self.asked.append(scheduler.now)
        first = scheduler.waiting.best()
        if self.pairs and len(scheduler.waiting) > 1:
            return first
        return first if first.rank <= scheduler.now else Delay(first.rank)


def not_before(request_id, time, max_tokens=3):
    made = make_request(request_id, 6, max_tokens=max_tokens)
    made.hints = {"not_before": time}
    return made


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_requests_start_at_their_time_and_not_before(depth):
    harness = make_harness(policy=NotBefore(), oracle={"depth": depth, "feeds_tokens": True, "step_time": 0.5})
    for name, time in (("late", 9.25), ("soon", 2.0), ("now", 0.0)):
        harness.add(not_before(name, time))
    started: dict[str, float] = {}
    while harness.scheduler.has_requests() or harness.num_in_flight:
        before = harness.clock.now()
        plans = len(harness.plans)
        harness.step()
        for plan in harness.plans[plans:]:
            started |= {new.request_id: before for new in plan.new_requests}
    harness.run()
    assert (started["now"], started["late"]) == (0.0, 9.25)
    assert 2.0 <= started["soon"] <= 2.5  # a step was running


def test_it_is_not_asked_more_often_than_time_passes():
    policy = NotBefore()
    harness = make_harness(policy=policy)
    harness.add(not_before("a", 3600.0))
    harness.run()
    assert policy.asked == [0.0, 3600.0]


def test_it_is_asked_again_when_a_request_arrives():
    policy = NotBefore(pairs=True)
    harness = make_harness(policy=policy)
    harness.add(not_before("a", 100.0))
    harness.clock.call_at(7.0, lambda: harness.add(not_before("b", 200.0)))
    harness.run()
    assert policy.asked[:2] == [0.0, 7.0]
    assert harness.clock.now() == 200.0  # b stood alone after that


def test_a_request_that_is_delayed_can_be_aborted():
    harness = make_harness(policy=NotBefore())
    harness.add(not_before("a", 100.0))
    assert harness.submit() is None
    assert harness.scheduler.wake_time == 100.0
    harness.abort(["a"])
    assert not harness.scheduler.has_requests()


@pytest.mark.parametrize("until", [0.0, -1.0, math.nan, math.inf])
def test_a_delay_that_would_never_end_or_never_begin_is_an_error(until):
    class Wrong(SchedulingPolicy):
        def rank(self, request, scheduler):
            return 0

        def choose(self, scheduler):
            return Delay(until)

    harness = make_harness(policy=Wrong())
    harness.add(make_request("a", 5))
    with pytest.raises(InvariantError, match=r"Wrong.choose gave a Delay until .* must be finite and after now"):
        harness.run()


# -- in an engine --


def make_engine(clock, **settings):
    component = policy_component("not-before", NotBefore)
    return make_core(components=[component], scheduler={"use": "not-before"}, clock=clock, **settings)


def hinted(request_id, time):
    made = request(request_id)
    made.hints = {"not_before": time}
    return made


@pytest.mark.parametrize("depth", [1, 4])
def test_an_engine_in_virtual_time_waits_exactly_so_long(depth):
    clock = VirtualClock()
    core = make_engine(clock, oracle={"depth": depth, "step_time": 0.25})
    core.add_request(hinted("a", 2.0))
    core.add_request(hinted("b", 0.0))
    outputs = run(core)
    assert [output.request_id for output in outputs if output.finish_reason is not None] == ["b", "a"]
    assert clock.now() == 2.0 + 5 * 0.25  # four tokens, and word to the workers that it has ended


def test_an_engine_in_real_time_sleeps_and_takes_requests_meanwhile():
    core = make_engine(RealClock())
    later = RealClock().now() + 0.05
    core.add_request(hinted("a", later))
    outputs, forward_ran = core.advance()
    assert (outputs, forward_ran) == ({}, False)
    core.add_request(hinted("b", 0.0))
    ended = [output.request_id for output in run(core) if output.finish_reason is not None]
    assert ended == ["b", "a"]
    assert RealClock().now() >= later


def test_an_engine_whose_policy_names_nobody_and_no_time_is_dead_with_a_reason():
    class Silent(SchedulingPolicy):
        def rank(self, request, scheduler):
            return 0

        def choose(self, scheduler):
            return None

    core = make_core(components=[policy_component("silent", Silent)], scheduler={"use": "silent"})
    core.add_request(request("a"))
    with pytest.raises(EngineDeadError, match="no progress"):
        core.advance()


# -- what a policy may ask of those that wait --


def test_the_first_after_a_rank():
    seen = []

    class Looking(SchedulingPolicy):
        def rank(self, request, scheduler):
            return request.priority

        def lane(self, request):
            return request.tenant

        def choose(self, scheduler):
            waiting = scheduler.waiting
            seen.append([[r.request_id for r in waiting.first(count, "", after=after)]
                         for count, after in ((2, None), (2, 1), (9, 2), (1, 0), (3, 3))])  # fmt: skip
            assert waiting.first(1, "no such lane", after=0) == []
            return waiting.best()

    harness = make_harness(policy=Looking(), max_num_seqs=1)
    for name, priority in (("a", 1), ("b", 2), ("c", 2), ("d", 3)):
        harness.add(make_request(name, 4, max_tokens=1, priority=priority))
    harness.run()
    assert seen[0] == [["a", "b"], ["b", "c"], ["d"], ["a"], []]
