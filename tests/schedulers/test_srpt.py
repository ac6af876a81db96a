"""`srpt`: mean latency at most that of sjf, since a short job need not wait for the end of a long one."""

import pytest

from tests.schedulers.lab import Trial, job
from tests.schedulers.workloads import SEEDS, STEP, heavy_tailed, much_alike, needed_tokens, tried


@pytest.mark.parametrize("seed", SEEDS)
def test_mean_latency_is_below_that_of_sjf_and_fcfs_with_rough_predictions(seed):
    fcfs, sjf, srpt = (tried(policy, heavy_tailed, seed) for policy in ("fcfs", "sjf", "srpt"))
    assert srpt.mean_latency() < 0.85 * sjf.mean_latency() < 0.85 * fcfs.mean_latency()
    assert 0 < srpt.stats.num_preemptions < 50
    assert srpt.computed_tokens < 1.1 * needed_tokens(srpt)


def test_where_all_are_alike_hardly_anybody_is_displaced():
    trial = tried("srpt", much_alike, 1)
    assert trial.stats.num_preemptions <= 10
    assert trial.mean_latency() < 1.05 * tried("fcfs", much_alike, 1).mean_latency()


def displaced(margin, long_left):
    """Whether a job of 40 tokens displaces the only running one, of which so much is left."""
    jobs = [job("long", 0.0, 5, 200), job("short", (200 - long_left) * STEP, 5, 40)]
    settings = {"margin": margin, "ageing": 0.0, "lease": 1}
    return Trial("srpt", jobs, step_time=STEP, max_num_seqs=1, policy_settings=settings).stats.num_preemptions == 1


@pytest.mark.parametrize(("margin", "long_left", "expected"), [
    (32.0, 150, True), (32.0, 80, True), (32.0, 60, False), (32.0, 30, False), (10.0, 60, True), (200.0, 150, False),
])  # fmt: skip
def test_it_takes_a_margin_to_displace(margin, long_left, expected):
    assert displaced(margin, long_left) == expected


@pytest.mark.parametrize(("lease", "displaces"), [(1, False), (150, True)])
def test_a_lease_says_how_soon_progress_counts(lease, displaces):
    jobs = [job("long", 0.0, 5, 150), job("short", 130 * STEP, 5, 60)]  # 20 tokens are left of the long one
    settings = {"ageing": 0.0, "lease": lease}
    trial = Trial("srpt", jobs, step_time=STEP, max_num_seqs=1, policy_settings=settings)
    assert (trial.stats.num_preemptions > 0) == displaces


@pytest.mark.parametrize(("prompt_weight", "first"), [(0.0, "chatty"), (1.0, "terse")])
def test_prompts_count_by_their_weight(prompt_weight, first):
    jobs = [job("running", 0.0, 5, 20), job("chatty", 0.01, 200, 10), job("terse", 0.01, 5, 40)]
    trial = Trial("srpt", jobs, step_time=STEP, max_num_seqs=1, policy_settings={"prompt_weight": prompt_weight})
    assert min(trial.of("chatty") + trial.of("terse"), key=lambda each: each.token_times[0]).name == first


def test_one_that_has_outlived_its_prediction_is_not_thrown_out_at_once():
    told = {"predicted_output_tokens": 100}
    jobs = [job("late", 0.0, 5, 130, max_tokens=1000, hints=told), job("next", 115 * STEP, 5, 60)]
    trial = Trial("srpt", jobs, step_time=STEP, max_num_seqs=1)
    assert trial.stats.num_preemptions == 0


@pytest.mark.parametrize(("ageing", "seconds"), [(20.0, 4.0), (40.0, 2.0)])
def test_ageing_bounds_how_long_a_stream_of_short_jobs_keeps_a_long_one_out(ageing, seconds):
    jobs = [job(f"short{n}", max(n - 1, 0) * 10 * STEP, 5, 10) for n in range(50)]
    jobs.append(job("long", 0.05, 5, 90))  # 80 tokens longer
    waits = {}
    for value in (0.0, ageing):
        trial = Trial("srpt", jobs, step_time=STEP, max_num_seqs=1, policy_settings={"ageing": value})
        waits[value] = trial["long"].latency - 90 * STEP
    assert waits[0.0] > 9.5
    assert waits[ageing] <= seconds + 40 * STEP
