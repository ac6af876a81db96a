"""Messages between front end, engine core and workers."""

from typing import Any

import pytest

from enginecore.messages import NewRequestData, RequestDelta, SchedulerOutput
from enginecore.sampling import SamplingParams

NEW = NewRequestData(
    request_id="a", token_ids=[1], num_prompt_tokens=1, params=SamplingParams(seed=0), block_ids=([0],)
)
ALONE: dict[str, Any] = {
    "num_scheduled_tokens": {"a": 1},
    "new_requests": [NEW],
    "deltas": [RequestDelta(request_id="a", new_block_ids=([1],), num_computed_tokens=4)],
    "finished_ids": ["a"],
    "preempted_ids": ["a"],
}
"""One value for each field that workers must hear of."""

SILENT: dict[str, Any] = {"step": 3, "extensions": {"plugin": 1}, "defer_sampling": True}
"""Fields that alone make no plan: without any other, it is not executed."""


@pytest.mark.parametrize("field", ALONE)
def test_one_field_makes_a_plan(field):
    assert not SchedulerOutput(step=3, **{field: ALONE[field]}).is_empty


def test_what_qualifies_other_fields_makes_no_plan():
    assert SchedulerOutput(**SILENT).is_empty


def test_every_field_of_a_plan_is_one_or_the_other():
    assert set(SchedulerOutput.__struct_fields__) == {*ALONE, *SILENT}


def test_a_field_that_is_added_counts():
    class Grown(SchedulerOutput, kw_only=True):
        drafts: int = 0

    assert not Grown(step=3, drafts=1).is_empty
    assert Grown(step=3).is_empty
