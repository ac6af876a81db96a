"""`priority`: an urgent request runs in the next step, and ageing bounds the wait of all others."""

import pytest

from tests.schedulers.lab import Trial, job

STEP = 0.02


def crowd(urgent_at):
    """Four long requests that fill all seats or all memory, and an urgent one."""
    jobs = [job(f"bulk{n}", 0.0, 30, 200, priority=5) for n in range(4)]
    return [*jobs, job("urgent", urgent_at, 30, 5, priority=0)]


@pytest.mark.parametrize("short_of", ["seats", "memory"])
def test_an_urgent_request_runs_in_the_next_step(short_of):
    limits = {"max_num_seqs": 4} if short_of == "seats" else {"max_num_seqs": 8, "num_kv_blocks": 60}
    arrival = 150 * STEP if short_of == "memory" else 50 * STEP  # by then 4 * 12 of the 60 blocks are taken, and grow
    ttft = {}
    for policy in ("fcfs", "priority"):
        trial = Trial(policy, crowd(arrival + 0.1 * STEP), step_time=STEP, **limits)
        ttft[policy] = trial["urgent"].ttft
    assert ttft["priority"] <= 2 * STEP  # the step that runs when it comes, and its own
    if short_of == "seats":
        assert ttft["fcfs"] > 100 * STEP


def test_those_of_a_class_do_not_displace_one_another():
    trial = Trial("priority", [job(f"j{n}", n * STEP, 30, 40, priority=3) for n in range(12)], step_time=STEP,
                  max_num_seqs=4)  # fmt: skip
    assert trial.stats.num_preemptions == 0
    order = sorted(trial.of(), key=lambda each: each.token_times[0])
    assert [each.name for each in order] == [f"j{n}" for n in range(12)]


@pytest.mark.parametrize("preemptive", [True, False])
def test_the_switch_decides_whether_it_displaces(preemptive):
    """Field case 15."""
    trial = Trial("priority", crowd(50 * STEP), step_time=STEP, max_num_seqs=4,
                  policy_settings={"preemptive": preemptive})  # fmt: skip
    assert trial.stats.num_preemptions == int(preemptive)
    assert (trial["urgent"].ttft > 100 * STEP) == (not preemptive)


@pytest.mark.parametrize(("ageing", "seconds"), [(1.0, 5.0), (2.5, 2.0)])
def test_ageing_bounds_the_wait_behind_a_steady_stream_of_urgent_requests(ageing, seconds):
    """Field case 17."""
    # two seats, a request of 20 tokens every 10 steps, and two to begin with: there is always one that waits
    stream = [job(f"urgent{n}", max(n - 2, 0) * 10 * STEP, 10, 20, priority=0) for n in range(52)]
    jobs = [*stream, job("patient", 0.1, 10, 20, priority=5)]
    waits = {}
    for value in (0.0, ageing):
        trial = Trial("priority", jobs, step_time=STEP, max_num_seqs=2, policy_settings={"ageing": value})
        waits[value] = trial["patient"].ttft
    assert waits[0.0] > 9.5  # until the stream has ended
    assert 0.8 * seconds < waits[ageing] <= seconds + 40 * STEP  # then two who came before, and a seat
