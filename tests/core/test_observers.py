"""Observers of whoever runs an engine core."""

import pytest

from enginecore.errors import EngineDeadError
from enginecore.interfaces import Observer
from enginecore.messages import FinishReason
from tests.core.engines import make_core, request, run


class Notes(Observer):
    """Keeps what it is told."""

    def __init__(self):
        self.steps, self.requests = [], []

    def step_finished(self, record):
        self.steps.append(record)

    def request_finished(self, record):
        self.requests.append(record)


def test_it_is_told_of_steps_with_their_plans_and_of_requests():
    core, notes = make_core(), Notes()
    core.add_observer(notes)
    core.add_request(request("a", prompt=5, max_tokens=2))
    run(core)
    assert [record.scheduled.num_scheduled_tokens for record in notes.steps] == [{"a": 5}, {"a": 1}, {}]
    assert [record.num_tokens for record in notes.steps] == [5, 1, 0]
    assert notes.steps[2].scheduled.finished_ids == ["a"]
    (ended,) = notes.requests
    assert (ended.request_id, ended.finish_reason, ended.num_output_tokens) == ("a", FinishReason.LENGTH, 2)


def test_several_are_all_told():
    core, first, second = make_core(), Notes(), Notes()
    core.add_observer(first)
    core.add_observer(second)
    core.add_request(request("a"))
    run(core)
    assert first.steps == second.steps
    assert len(first.requests) == len(second.requests) == 1


def test_what_it_raises_is_a_failure_of_the_engine():
    """It belongs to the caller: a gap in what it wrote down must not pass unseen."""

    class Failing(Notes):
        def step_finished(self, record):
            raise RuntimeError("the disk is full")

    core = make_core()
    core.add_observer(Failing())
    core.add_request(request("a"))
    with pytest.raises(EngineDeadError, match="the disk is full"):
        run(core)
