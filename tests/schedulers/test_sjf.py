"""`sjf`: mean latency at most that of fcfs, with rough predictions too, and nobody starves."""

import pytest

from tests.schedulers.lab import Trial, job
from tests.schedulers.workloads import SEEDS, STEP, exact, heavy_tailed, rough, tried


@pytest.mark.parametrize("predict", [exact, rough])
@pytest.mark.parametrize("seed", SEEDS)
def test_mean_latency_is_far_below_that_of_fcfs(predict, seed):
    trial, fcfs = tried("sjf", heavy_tailed, seed, predict=predict), tried("fcfs", heavy_tailed, seed)
    assert trial.mean_latency() < 0.85 * fcfs.mean_latency()
    assert trial.stats.num_preemptions == 0


def test_without_predictions_max_tokens_decides():
    jobs = [job("running", 0.0, 5, 20)]
    jobs += [job(name, 0.01, 5, 5, max_tokens=limit) for name, limit in (("c", 300), ("a", 100), ("b", 200))]
    trial = Trial("sjf", jobs, step_time=STEP, max_num_seqs=1)
    assert [each.name for each in sorted(trial.of(), key=lambda each: each.token_times[0])] == ["running", *"abc"]


@pytest.mark.parametrize(("prompt_weight", "first"), [(0.0, "chatty"), (1.0, "terse")])
def test_prompts_count_by_their_weight(prompt_weight, first):
    jobs = [job("running", 0.0, 5, 20), job("chatty", 0.01, 200, 10), job("terse", 0.01, 5, 40)]
    trial = Trial("sjf", jobs, step_time=STEP, max_num_seqs=1, policy_settings={"prompt_weight": prompt_weight})
    assert min(trial.of("chatty") + trial.of("terse"), key=lambda each: each.token_times[0]).name == first


@pytest.mark.parametrize(("ageing", "seconds"), [(20.0, 4.0), (40.0, 2.0)])
def test_ageing_bounds_how_long_a_stream_of_short_jobs_overtakes_a_long_one(ageing, seconds):
    # one seat, a job of 10 tokens every 10 steps and one more: there is always one that waits
    jobs = [job(f"short{n}", max(n - 1, 0) * 10 * STEP, 5, 10) for n in range(50)]
    jobs.append(job("long", 0.05, 5, 90))  # 80 tokens longer
    waits = {}
    for value in (0.0, ageing):
        trial = Trial("sjf", jobs, step_time=STEP, max_num_seqs=1, policy_settings={"ageing": value})
        waits[value] = trial["long"].ttft
    assert waits[0.0] > 9.5  # until the stream has ended
    assert 0.8 * seconds < waits[ageing] <= seconds + 40 * STEP
