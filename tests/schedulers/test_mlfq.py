"""`mlfq`: short outputs overtake long ones although no length is known; long ones finish; a tight pool is not thrashed.

Orderings that theory gives (Righter and Shanthikumar 1989): serving first who has got least pays where a few are very
long, and costs where all are alike.
"""

from statistics import mean

import pytest

from tests.schedulers.lab import Trial, job
from tests.schedulers.workloads import LIMITS, SEEDS, STEP, heavy_tailed, much_alike, needed_tokens, poisson, tried


def mean_of_short(trial, law, seed):
    return mean(trial[f"j{n}"].latency for n, length in enumerate(law(seed)) if length <= 40)


@pytest.mark.parametrize("seed", SEEDS)
def test_short_outputs_overtake_long_ones(seed):
    trial, fcfs = tried("mlfq", heavy_tailed, seed), tried("fcfs", heavy_tailed, seed)
    assert mean_of_short(trial, heavy_tailed, seed) < 0.5 * mean_of_short(fcfs, heavy_tailed, seed)
    assert trial.mean_latency() < 0.75 * fcfs.mean_latency()
    assert trial.makespan < 1.15 * fcfs.makespan  # the long ones do not go without


def test_where_all_are_alike_it_costs():
    assert tried("mlfq", much_alike, 1).mean_latency() > 1.1 * tried("fcfs", much_alike, 1).mean_latency()


@pytest.mark.parametrize("num_kv_blocks", [24, 40])
def test_a_tight_pool_is_not_thrashed(num_kv_blocks):
    jobs = poisson([min(length, 300) for length in heavy_tailed(2)], seed=2, load=0.9, seats=8)
    limits = {**LIMITS, "max_num_seqs": 8, "num_kv_blocks": num_kv_blocks}
    trial, fcfs = Trial("mlfq", jobs, **limits), Trial("fcfs", jobs, **limits)
    assert 20 < trial.stats.num_preemptions < len(jobs)
    assert trial.computed_tokens < 1.6 * needed_tokens(trial)
    assert trial.makespan < 1.1 * fcfs.makespan
    assert trial.mean_latency() < 0.6 * fcfs.mean_latency()


def test_a_long_request_finishes_behind_a_steady_stream_of_short_ones():
    # two seats, a request of 10 tokens every 5 steps and two more: there is always one of the first level that waits
    jobs = [job(f"short{n}", max(n - 2, 0) * 5 * STEP, 5, 10) for n in range(400)]
    jobs.append(job("long", 0.0, 5, 200))
    patience = {}
    for seconds in (1.0, 4.0):
        trial = Trial("mlfq", jobs, step_time=STEP, max_num_seqs=2, policy_settings={"patience": seconds})
        patience[seconds] = trial["long"].latency
    # alone it takes 4 s; it is displaced once for each of 4 levels, and comes back after its patience is over
    assert patience[1.0] <= 200 * STEP + 4 * (1.0 + 20 * STEP)
    assert patience[1.0] < patience[4.0] <= 200 * STEP + 4 * (4.0 + 20 * STEP)


@pytest.mark.parametrize(("settings", "preemptions"), [
    ({"quantum": 16}, 1), ({"quantum": 64}, 0), ({"quantum": 16, "levels": 2}, 1),
])  # fmt: skip
def test_the_first_quantum_says_how_long_a_request_is_safe(settings, preemptions):
    jobs = [job("first", 0.0, 5, 60), job("second", 40 * STEP, 5, 10)]
    trial = Trial("mlfq", jobs, step_time=STEP, max_num_seqs=1, policy_settings=settings)
    assert trial.stats.num_preemptions == preemptions


@pytest.mark.parametrize(("prompt_weight", "order"), [(0.02, ["a", "c", "b"]), (0.0, ["a", "b", "c"])])
def test_a_long_prompt_joins_further_down(prompt_weight, order):
    jobs = [job("a", 0.0, 5, 5), job("b", 0.01, 2000, 5), job("c", 0.02, 20, 5)]
    trial = Trial("mlfq", jobs, step_time=STEP, max_num_seqs=1, policy_settings={"prompt_weight": prompt_weight})
    assert [each.name for each in sorted(trial.of(), key=lambda each: each.token_times[0])] == order


def test_more_levels_let_a_long_request_sink_further():
    # one that has got 200 tokens, one that has got 60, and a seat for one of them
    jobs = [job("old", 0.0, 5, 400), job("young", 200 * STEP, 5, 100), job("new", 250 * STEP, 5, 10)]
    ends = {}
    for levels in (2, 6):
        trial = Trial("mlfq", jobs, step_time=STEP, max_num_seqs=1, policy_settings={"levels": levels})
        ends[levels] = trial["old"].token_times[-1], trial["young"].token_times[-1]
    assert ends[6][1] < ends[6][0]
    assert ends[2] != ends[6]
