"""The highest rate that is still served in time: the search by itself, and on an engine whose capacity is known."""

import math

import pytest

from enginecore.errors import ConfigurationError
from enginecore_lab import find_capacity
from enginecore_lab.capacity import search
from tests.lab.small import experiment


@pytest.mark.parametrize("limit", [0.013, 0.9, 1.0, 1.1, 6.7, 300.0])
@pytest.mark.parametrize("tolerance", [0.2, 0.02])
def test_search_finds_the_limit_from_below(limit, tolerance):
    left: list[int] = []
    factor, points = search(lambda factor: 1.0 if factor <= limit else 0.5, 0.9, tolerance, left.append)
    assert factor <= limit < factor * (1 + tolerance)
    assert points[factor] == 1.0
    assert len(points) == len(left) <= 9 + math.ceil(math.log2(math.log(2) / math.log1p(tolerance))) + 4 + 1
    assert left[-1] == 0


def test_target_is_met_exactly():
    factor, points = search(lambda factor: max(0.0, 1 - factor / 10), 0.9, 0.001, lambda left: None)
    assert factor == pytest.approx(1.0, rel=0.001)
    assert points[factor] >= 0.9


@pytest.mark.parametrize(
    ("attainment", "message"), [(1.0, "still 90% of all requests are good"), (0.0, "fewer than 90%")]
)
def test_search_without_end_says_why(attainment, message):
    with pytest.raises(ConfigurationError, match=message):
        search(lambda factor: attainment, 0.9, 0.02, lambda left: None)


def one_at_a_time(**changes):
    """Requests of four steps, one each second: at step times of 0.1 and 0.05 s it serves 2.5 and 5 per second."""
    made = {
        "workload__arrivals": {"kind": "constant", "rate": 1.0},
        "workload__num_requests": 100,
        "workload__output__low": 4,
        "workload__output__high": 4,
        "engine__max_num_seqs": 1,
        "engine__executor__oracle__step_time": 0.1,
        "arms": [{"name": "slow"}, {"name": "fast", "settings": {"executor": {"oracle": {"step_time": 0.05}}}}],
        "slo__e2e": 0.55,
        "replicates": 1,
    }
    return experiment(**(made | changes))


def test_capacity_of_a_server_of_one_request_at_a_time():
    told = []
    slow, fast = find_capacity(one_at_a_time(), tolerance=0.05, progress=lambda *each: told.append(each))
    # each request takes 0.4 s: at a rate above 2.5 they wait longer and longer
    assert 2.3 < slow.rate < 2.75
    assert 4.6 < fast.rate < 5.6
    assert (slow.arm, fast.arm) == ("slow", "fast")
    assert slow.is_monotone
    assert fast.is_monotone
    assert slow.attainment >= 0.9
    assert [point.rate for point in slow.points] == sorted(point.rate for point in slow.points)
    assert told[-1][0] == told[-1][1] == len(slow.points) + len(fast.points)


def test_attainment_that_rises_with_the_rate_is_pointed_out():
    """Around 1.33 times the rate it is worse than at 1.9, where a probe looks."""
    _, points = search(lambda factor: 0.5 if 1.3 < factor < 1.4 else float(factor < 1.9), 0.9, 0.02, lambda left: None)
    good = [points[factor] >= 0.9 for factor in sorted(points)]
    assert good != sorted(good, reverse=True)


def test_closed_loops_have_no_rate():
    with pytest.raises(ConfigurationError, match="is a closed loop: its clients wait for answers, so it has no rate"):
        find_capacity(one_at_a_time(workload__closed={"concurrency": 2}))


def test_terms_are_needed():
    with pytest.raises(Exception, match="neither the workload nor slo says what is good enough"):
        find_capacity(one_at_a_time(slo={"ttft": None}, slo__e2e=None))


@pytest.mark.parametrize(
    "wrong", [{"target": 0}, {"target": 1.1}, {"tolerance": 0}, {"tolerance": 1e-18}, {"tolerance": math.inf}]
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        find_capacity(one_at_a_time(), **wrong)
