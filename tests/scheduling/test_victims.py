"""Who gives way: each victim component in one scene, and what a policy may leave to it."""

import pytest

from enginecore.errors import InvariantError
from enginecore.interfaces import VictimChoice
from enginecore.scheduling import SchedulingPolicy
from tests.scheduling.harnesses import VICTIMS, make_harness, make_request, make_victim


class Urgent(SchedulingPolicy):
    preemptive = True

    def rank(self, request, scheduler):
        return request.priority


class Classes(Urgent):
    """Within the worst class, whom the component likes."""

    def may_give_way(self, candidates, needy, scheduler):
        return [request for request in candidates if request.priority == candidates[-1].priority]


# name: tokens of its prompt, priority; in order of arrival
SCENE = {
    "needy": (8, 0),  # its 2 blocks are full, so that its first decode needs a third
    "worst": (6, 9),  # 2 blocks
    "big": (13, 5),  # 4 blocks
    "light": (2, 6),  # 1 block
    "young": (5, 1),  # 2 blocks
}


def play(victim, policy=None):
    """The scene in 11 blocks of 4: all are admitted in the first step; who gives way in the second."""
    harness = make_harness(
        policy=policy or Urgent(), victim=make_victim(victim), num_blocks=11, block_size=4, max_num_batched_tokens=64
    )
    for n, (name, (length, priority)) in enumerate(SCENE.items()):
        harness.add(make_request(name, range(n * 20, n * 20 + length), max_tokens=12, priority=priority))
    harness.step()
    assert harness.kv_cache_manager.num_free_blocks == 0
    plan = harness.submit()
    assert plan is not None
    preempted = plan.preempted_ids
    harness.run()  # and every token is right
    assert harness.scheduler.get_stats().num_preemptions > 0
    return preempted


@pytest.mark.parametrize(
    ("victim", "preempted"),
    [("worst_rank", "worst"), ("newest", "young"), ("least_computed", "light"), ("largest", "big")],
)
def test_each_victim_is_what_its_name_says(victim, preempted):
    assert play(victim) == [preempted]


@pytest.mark.parametrize("victim", VICTIMS)
def test_of_equals_the_worst_rank_gives_way(victim):
    class Equal:
        def __init__(self, request_id):
            self.request_id = request_id
            self.seq = self.num_blocks = self.num_scheduled_tokens = 4

    candidates = [Equal("a"), Equal("b"), Equal("c")]
    if victim != "newest":  # no two arrive with one number
        assert make_victim(victim).choose(candidates, candidates[0], None) is candidates[-1]


def test_without_a_component_the_worst_rank_gives_way():
    harness = make_harness(policy=Urgent(), num_blocks=4, block_size=4)
    harness.add(make_request("low", range(1, 8), priority=9))
    harness.add(make_request("high", range(11, 19), priority=1))
    harness.step()
    plan = harness.submit()
    assert plan is not None
    assert plan.preempted_ids == ["low"]


# -- what a policy leaves to the component --


@pytest.mark.parametrize(("victim", "preempted"), [("largest", "c"), ("newest", "d"), ("least_computed", "b")])
def test_a_policy_with_classes_leaves_the_choice_within_the_worst_one(victim, preempted):
    harness = make_harness(
        policy=Classes(), victim=make_victim(victim), num_blocks=15, block_size=4, max_num_batched_tokens=64
    )
    for n, (name, length, priority) in enumerate(
        [("a", 8, 0), ("big", 17, 1), ("b", 2, 5), ("c", 10, 5), ("d", 5, 5), ("small", 2, 1)]
    ):
        harness.add(make_request(name, range(n * 20, n * 20 + length), max_tokens=8, priority=priority))
    harness.step()
    assert harness.kv_cache_manager.num_free_blocks == 1
    harness.add(make_request("urgent", range(200, 207), max_tokens=8, priority=-1))
    plan = harness.submit()
    assert plan is not None
    assert plan.preempted_ids[0] == preempted
    harness.run()


class NobodyGivesWay(Urgent):
    def may_give_way(self, candidates, needy, scheduler):
        return []


def test_where_nobody_may_give_way_needy_does_and_who_waits_goes_on_waiting():
    harness = make_harness(policy=NobodyGivesWay(), num_blocks=4, block_size=4)
    harness.add(make_request("full", range(1, 9), priority=1))
    harness.add(make_request("low", range(11, 18), priority=9))
    harness.step()
    harness.add(make_request("urgent", range(21, 24), priority=0))
    plan = harness.submit()
    assert plan is not None
    assert (plan.preempted_ids, plan.new_requests) == (["full"], [])
    harness.run()


class Own(Urgent):
    """Decides alone."""

    def victim(self, candidates, needy, scheduler):
        return candidates[0]


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_policy_that_overrides_victim_decides_alone(victim):
    assert play(victim, Own()) == ["needy"]


class Stranger(VictimChoice):
    def choose(self, candidates, needy, scheduler):
        return scheduler.waiting.best()


def test_a_component_that_names_no_candidate_is_named():
    harness = make_harness(policy=Urgent(), victim=Stranger(), num_blocks=4, block_size=4, max_num_seqs=2)
    harness.add(make_request("a", range(1, 9)))
    harness.add(make_request("b", range(11, 19)))
    harness.step()
    harness.add(make_request("c", range(21, 29), priority=9))
    with pytest.raises(InvariantError, match=r"Stranger.choose named .*'c'.*, which is not a candidate"):
        harness.submit()
