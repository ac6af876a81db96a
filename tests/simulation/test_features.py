"""What is read off a plan."""

import pytest

from enginecore.messages import NewRequestData, RequestDelta, SchedulerOutput
from enginecore.sampling import SamplingParams
from enginecore_simulation import StepFeatures, StepTracker


def new(request_id, known, computed=0):
    return NewRequestData(
        request_id=request_id,
        token_ids=[1] * known,
        num_prompt_tokens=known,
        params=SamplingParams(),
        block_ids=([0],),
        num_computed_tokens=computed,
    )


def plan(step, scheduled, **changes):
    return SchedulerOutput(step=step, num_scheduled_tokens=scheduled, **changes)


def test_a_prompt_in_pieces_then_decodes():
    tracker = StepTracker()
    first = tracker.apply(plan(0, {"a": 6}, new_requests=[new("a", 10)]))
    assert first == (StepFeatures(6, 0, 1, 0, 6 * 3.0), [])
    # the second piece comes after 6 cached tokens, and reaches the last known one
    second = tracker.apply(plan(1, {"a": 4, "b": 5}, new_requests=[new("b", 8, computed=3)]))
    assert second == (StepFeatures(9, 0, 2, 0, 4 * 8.0 + 5 * 5.5), ["a", "b"])
    # 10 and 8 tokens are cached, and each reads the new one too
    assert tracker.apply(plan(2, {"a": 1, "b": 1})) == (StepFeatures(2, 2, 2, 11 + 9), ["a", "b"])
    assert tracker.apply(plan(3, {"b": 1})) == (StepFeatures(1, 1, 1, 10), ["b"])


def test_decodes_beside_a_prompt():
    tracker = StepTracker()
    tracker.apply(plan(0, {"a": 4}, new_requests=[new("a", 4)]))
    mixed = tracker.apply(plan(1, {"a": 1, "b": 2}, new_requests=[new("b", 3)]))
    assert mixed == (StepFeatures(3, 1, 2, 5, 2 * 1.0), ["a"])
    assert not mixed.features.is_pure_decode
    # the last token of a prompt alone is no decode, though it is one token
    assert tracker.apply(plan(2, {"b": 1})) == (StepFeatures(1, 0, 1, 0, 2.5), ["b"])


def test_one_that_is_gone_may_come_back_in_the_same_step():
    tracker = StepTracker()
    tracker.apply(plan(0, {"a": 4, "b": 2}, new_requests=[new("a", 4), new("b", 2)]))
    tracker.apply(plan(1, {"a": 1, "b": 1}))
    back = tracker.apply(plan(2, {"a": 6}, preempted_ids=["a"], finished_ids=["b"], new_requests=[new("a", 6)]))
    assert back == (StepFeatures(6, 0, 1, 0, 18.0), ["a"])
    assert tracker.request_ids == ["a"]
    assert tracker.apply(plan(3, {}, finished_ids=["a"])) == (StepFeatures(), [])
    assert tracker.request_ids == []


def test_a_delta_says_how_much_is_computed():
    tracker = StepTracker()
    tracker.apply(plan(0, {"a": 4}, new_requests=[new("a", 4)]))
    tracker.apply(plan(1, {"a": 1}))
    rolled_back = RequestDelta(request_id="a", new_block_ids=([1],), num_computed_tokens=4)
    assert tracker.apply(plan(2, {"a": 1}, deltas=[rolled_back])).features.decode_context == 5


def test_a_plan_that_names_a_stranger_is_an_error():
    with pytest.raises(KeyError, match="stranger"):
        StepTracker().apply(plan(0, {"stranger": 1}))
    with pytest.raises(KeyError, match="stranger"):
        StepTracker().apply(plan(0, {}, finished_ids=["stranger"]))
