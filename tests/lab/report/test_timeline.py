"""What each moment of a request was spent on."""

from array import array
from itertools import pairwise

import pytest

from enginecore.messages import FinishReason
from enginecore_lab.report.timeline import outcome, segments, worst_requests
from enginecore_lab.run import RequestRun, StepSeries
from enginecore_lab.workload import WorkloadRequest
from tests.lab.report.example import add_step, make_runs
from tests.lab.report.test_series import make_request, make_run


def make_steps(*spans):
    steps = StepSeries()
    for started, settled in spans:
        add_step(steps, started, settled)
    return steps


def life(each, steps):
    run = make_run([each], steps)
    return [(found.phase, found.start, found.end, found.tokens) for found in segments(run, each)]


def make_life(*, times=(), pieces=(), first: float | None = 1.0, ended: float | None = None, preempted_at=()):
    request = WorkloadRequest(request_id="r", arrival=0.0, num_prompt_tokens=30, num_output_tokens=len(times) or 1)
    return RequestRun(
        request,
        arrival=0.0,
        first_scheduled=first,
        token_times=array("d", times),
        ended=ended,
        finish_reason=None if ended is None else FinishReason.STOP,
        pieces=list(pieces),
        preempted_at=list(preempted_at),
        num_preemptions=len(preempted_at),
    )


def test_a_plain_life_is_queued_prefill_decode():
    each = make_life(times=[2.0, 2.5, 3.0], pieces=[(0, 30)], ended=3.0)
    assert life(each, make_steps((1.0, 2.0))) == [
        ("queued", 0.0, 1.0, 0),
        ("prefill", 1.0, 2.0, 30),
        ("decode", 2.0, 3.0, 2),
    ]


def test_pieces_of_a_prompt_are_apart_and_pauses_between_them_are_waiting():
    each = make_life(times=[5.0], pieces=[(0, 10), (1, 10), (3, 10)], ended=5.0)
    steps = make_steps((1.0, 2.0), (2.0, 3.0), (3.0, 4.0), (4.0, 5.0))
    assert life(each, steps) == [
        ("queued", 0.0, 1.0, 0),
        ("prefill", 1.0, 2.0, 10),
        ("prefill", 2.0, 3.0, 10),
        ("waiting", 3.0, 4.0, 0),
        ("prefill", 4.0, 5.0, 10),
    ]


@pytest.mark.parametrize("preempted_at", [3.0, 2.5], ids=["after its token", "with a token in flight"])
def test_decodes_end_where_it_is_preempted(preempted_at):
    each = make_life(
        times=[2.0, 3.0, 6.0, 7.0],
        pieces=[(0, 30), (1, 32)],
        ended=7.0,
        preempted_at=[preempted_at],
    )
    assert life(each, make_steps((1.0, 2.0), (5.0, 6.0))) == [
        ("queued", 0.0, 1.0, 0),
        ("prefill", 1.0, 2.0, 30),
        ("decode", 2.0, 3.0, 1),
        ("preempted", 3.0, 5.0, 0),
        ("prefill", 5.0, 6.0, 32),
        ("decode", 6.0, 7.0, 1),
    ]


def test_a_preemption_within_the_prompt_is_told_from_a_pause_by_its_record():
    each = make_life(times=[5.0], pieces=[(0, 10), (1, 30)], ended=5.0, preempted_at=[2.5])
    assert life(each, make_steps((1.0, 2.0), (4.0, 5.0)))[2] == ("preempted", 2.0, 4.0, 0)


def test_pieces_of_what_is_computed_again_are_apart_without_another_preemption():
    each = make_life(times=[2.0, 7.0], pieces=[(0, 30), (1, 16), (2, 15)], ended=7.0, preempted_at=[2.0])
    assert life(each, make_steps((1.0, 2.0), (3.0, 4.0), (6.0, 7.0)))[2:] == [
        ("preempted", 2.0, 3.0, 0),
        ("prefill", 3.0, 4.0, 16),
        ("waiting", 4.0, 6.0, 0),
        ("prefill", 6.0, 7.0, 15),
    ]


def test_one_that_was_never_scheduled_is_queued_to_its_end():
    each = make_life(first=None, ended=4.0)
    assert life(each, StepSeries()) == [("queued", 0.0, 4.0, 0)]


def test_one_that_never_ended_goes_on_to_the_end_of_the_run():
    each, other = make_life(times=[2.0, 3.0], pieces=[(0, 30)]), make_request("other", 0.0, times=[9.0])
    run = make_run([each, other], make_steps((1.0, 2.0)))
    assert [(found.phase, found.end) for found in segments(run, each)][-1] == ("waiting", 9.0)
    assert outcome(each) == "unfinished"


def test_a_piece_of_a_step_that_is_not_there_is_refused():
    each = make_life(times=[2.0], pieces=[(7, 30)], ended=2.0)
    with pytest.raises(ValueError, match=r"'r' has a piece in step 7"):
        life(each, make_steps((1.0, 2.0)))


def test_what_is_too_short_to_be_seen_is_drawn_with_what_stands_before_it():
    each = make_life(times=[1001.0], pieces=[(step, 1) for step in range(1000)], ended=1001.0)
    steps = make_steps(*((1.0 + step, 2.0 + step) for step in range(1000)))
    found = segments(make_run([each], steps), each, at_most=50)
    assert len(found) <= 50
    assert (found[0].start, found[-1].end) == (0.0, 1001.0)
    assert sum(segment.tokens for segment in found) == 1000
    assert all(a.end == b.start for a, b in pairwise(found))


def test_lives_have_no_gaps():
    run = make_runs(num_requests=200)["fcfs"]
    assert sum(each.num_preemptions for each in run.requests) > 0
    phases = set()
    for each in run.requests:
        found = segments(run, each)
        phases |= {segment.phase for segment in found}
        assert found[0].start == each.arrival
        assert found[-1].end == each.ended
        assert all(a.end == b.start for a, b in pairwise(found))
    assert phases == {"queued", "prefill", "waiting", "decode", "preempted"}


class TestWorstRequests:
    requests = (
        make_request("short", 0.0, times=[1.0]),
        make_request("long", 0.0, times=[10.0]),
        make_request("stuck", 3.0, reason=None),
        make_request("failed", 4.0, times=[5.0], reason=FinishReason.ERROR),
        make_request("aborted", 4.0, times=[5.0], reason=FinishReason.ABORT),
        make_request("b", 8.0, times=[9.0]),
        make_request("never came", float("inf"), reason=None),
    )

    def names(self, count):
        return [each.request.request_id for each in worst_requests(make_run(self.requests), count)]

    def test_half_of_them_at_most_are_those_that_failed_or_did_not_end(self):
        assert self.names(4) == ["stuck", "aborted", "long", "b"]

    def test_the_rest_were_longest_in_the_system_and_equals_are_in_order_of_their_ids(self):
        assert self.names(100) == ["stuck", "aborted", "failed", "long", "b", "short"]

    def test_outcomes_have_a_word(self):
        assert [outcome(each) for each in self.requests[:5]] == ["complete", "complete", "unfinished", "error", "abort"]
