"""Trap 11: latencies of an overloaded engine say how long the run was."""

from itertools import count

import numpy as np
import pytest

from enginecore_lab.metrics import is_saturated, load_of
from tests.lab.making import asked, on_oracle, virtually, workload
from tests.lab.metrics.made import run_of, served


def poisson(load, number, seed=1, seats=4, output=20, **fields):
    """Requests that keep four seats busy for that share of the time, on steps of a second."""
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.exponential(output / seats / load, number))
    return workload([asked(f"r{n}", float(at), output=output) for n, at in zip(count(), times, strict=False)], **fields)


def served_by_four(load, number, **fields):
    return virtually(poisson(load, number, **fields), on_oracle(max_num_seqs=4))


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_engine_that_keeps_up_is_not_saturated(load, seed):
    assert not is_saturated(served_by_four(load, 300, seed=seed))


@pytest.mark.parametrize("load", [1.3, 2.0, 10.0])
@pytest.mark.parametrize("policy", ["fcfs", "sjf", "mlfq"])
def test_one_that_does_not_is(load, policy):
    run = virtually(poisson(load, 150), on_oracle(max_num_seqs=4, scheduler={"use": policy}))
    measured = load_of(run)
    assert is_saturated(run)
    assert measured is not None
    assert measured.utilization > 1.15


def test_offered_and_served_are_rates_while_requests_come():
    measured = load_of(served_by_four(0.5, 400))
    assert measured is not None
    assert measured.offered == pytest.approx(0.1, rel=0.1)
    assert measured.utilization == pytest.approx(1.0, abs=0.05)


def test_seats_that_fill_up_first_hide_nothing():
    """Nobody waits for a while, although twice as many come as can be served."""
    requests = [asked(f"r{n}", n / 4, output=60) for n in range(300)]
    run = virtually(requests, on_oracle(0.5, max_num_seqs=64))
    assert max(run.steps.num_waiting[:25]) <= 2
    assert is_saturated(run)


def test_a_closed_loop_limits_itself():
    run = served_by_four(10.0, 60, loop="closed", concurrency=20)
    assert load_of(run) is None
    assert not is_saturated(run)


def test_all_at_once_is_no_rate():
    assert load_of(run_of(served(), served(), settled=[1.0], waiting=[0])) is None


def test_a_burst_that_is_worked_off_is_no_overload():
    requests = [asked(f"b{n}", 100.0 + n * 0.01, output=20) for n in range(40)]
    requests += [asked(f"r{n}", 10.0 * n, output=20) for n in range(100)]
    assert not is_saturated(virtually(requests, on_oracle(max_num_seqs=4)))
