"""`static_batch`: a batch takes as long as its longest member, which is what continuous batching is for."""

from random import Random

import pytest

from enginecore.errors import ConfigurationError
from tests.schedulers.lab import Trial, job

STEP, SEATS = 0.02, 8


def steps_of(trial):
    return sum(bool(step.plan.num_scheduled_tokens) for step in trial.steps)


def test_batches_one_after_another_take_their_longest_outputs():
    random = Random(3)
    lengths = [min(int(random.expovariate(1 / 20)) + 1, 120) for _ in range(48)]
    jobs = [job(f"j{n}", 0.0, 12, length) for n, length in enumerate(lengths)]
    limits = {"step_time": STEP, "max_num_seqs": SEATS, "max_num_batched_tokens": 512}
    static, continuous = Trial("static_batch", jobs, **limits), Trial("fcfs", jobs, **limits)
    longest = [max(lengths[start : start + SEATS]) for start in range(0, 48, SEATS)]
    assert steps_of(static) == sum(longest)
    assert sum(lengths) / SEATS <= steps_of(continuous) <= sum(lengths) / SEATS + max(lengths)
    assert steps_of(static) > 1.8 * steps_of(continuous)  # the harmonic number of 8 is 2.7
    assert static.mean_latency() > 1.8 * continuous.mean_latency()


def test_nobody_joins_a_batch_that_runs():
    jobs = [job("first", 0.0, 10, 30), job("second", 0.0, 10, 5), job("third", 3 * STEP, 10, 5)]
    trial = Trial("static_batch", jobs, step_time=STEP, max_num_seqs=SEATS)
    assert trial["second"].ended == pytest.approx(5 * STEP)
    assert trial["third"].token_times[0] == pytest.approx(31 * STEP)
    assert Trial("fcfs", jobs, step_time=STEP, max_num_seqs=SEATS)["third"].token_times[0] < 6 * STEP


def test_a_batch_whose_prompts_take_several_steps_is_still_one_batch():
    jobs = [job(f"j{n}", 0.0, 50, 10) for n in range(4)]
    trial = Trial("static_batch", jobs, step_time=STEP, max_num_seqs=4, max_num_batched_tokens=64)
    assert len({each.ended for each in trial.of()}) == 1
    assert steps_of(trial) == 4 + 9


def test_a_smaller_batch_size_makes_more_batches():
    jobs = [job(f"j{n}", 0.0, 5, 10) for n in range(8)]
    for size, batches in ((None, 1), (4, 2), (1, 8)):
        trial = Trial("static_batch", jobs, step_time=STEP, max_num_seqs=SEATS, policy_settings={"batch_size": size})
        assert steps_of(trial) == 10 * batches


def test_a_batch_that_the_memory_does_not_hold_is_closed():
    jobs = [job(f"j{n}", 0.0, 30, 8) for n in range(5)]  # two blocks each to begin with, three in the end
    trial = Trial("static_batch", jobs, step_time=STEP, max_num_seqs=5, num_kv_blocks=9)
    ends = sorted(each.ended for each in trial.of())
    assert ends[0] == ends[2] < ends[3]


@pytest.mark.parametrize("max_delay", [0.0, 0.5])
def test_a_batch_that_is_not_full_waits_for_more(max_delay):
    jobs = [job("first", 0.0, 10, 4), job("second", 0.3, 10, 4)]
    trial = Trial("static_batch", jobs, step_time=STEP, max_num_seqs=4, policy_settings={"max_delay": max_delay})
    assert trial["first"].token_times[0] == pytest.approx(max_delay + STEP)
    together = trial["first"].token_times[0] == trial["second"].token_times[0]
    assert together == (max_delay > 0.3)


def test_a_full_batch_does_not_wait():
    jobs = [job(f"j{n}", 0.1 * n, 10, 4) for n in range(3)]
    trial = Trial("static_batch", jobs, step_time=STEP, max_num_seqs=3, policy_settings={"max_delay": 60.0})
    assert trial["j0"].token_times[0] == pytest.approx(0.2 + STEP, abs=0.002)


def test_a_batch_larger_than_the_seats_is_refused():
    with pytest.raises(ConfigurationError, match=r"batch_size = 9 is above max_num_seqs = 8"):
        Trial("static_batch", [], max_num_seqs=8, policy_settings={"batch_size": 9})
