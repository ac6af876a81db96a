"""`gittins`: it is told no lengths, and does as well as whoever of fcfs, mlfq and sjf suits the workload best."""

from collections import Counter
from math import inf
from random import Random

import pytest

from enginecore_schedulers.gittins import EDGES, MOST_CLASSES, OutputLengths
from tests.schedulers.lab import Trial, job
from tests.schedulers.workloads import SEEDS, STEP, exact, heavy_tailed, much_alike, needed_tokens, tried, two_kinds


@pytest.mark.parametrize("seed", SEEDS)
def test_where_a_few_are_very_long_it_does_as_mlfq_does(seed):
    trial = tried("gittins", heavy_tailed, seed)
    assert trial.mean_latency() < 1.05 * tried("mlfq", heavy_tailed, seed).mean_latency()
    assert trial.mean_latency() < 0.75 * tried("fcfs", heavy_tailed, seed).mean_latency()
    assert trial.computed_tokens < 1.1 * needed_tokens(trial)


@pytest.mark.parametrize("seed", SEEDS)
def test_where_all_are_alike_it_does_as_fcfs_does(seed):
    trial = tried("gittins", much_alike, seed)
    assert trial.mean_latency() < 1.03 * tried("fcfs", much_alike, seed).mean_latency()
    assert trial.mean_latency() < 0.9 * tried("mlfq", much_alike, seed).mean_latency()


@pytest.mark.parametrize("seed", SEEDS)
def test_where_tenants_differ_it_does_as_sjf_does_with_true_lengths(seed):
    fcfs, sjf, trial = (
        tried(policy, two_kinds, seed, predict=exact, tenants=("chat", "reports"))
        for policy in ("fcfs", "sjf", "gittins")
    )
    assert trial.mean_latency() < 1.05 * sjf.mean_latency()
    assert trial.mean_latency() < 0.9 * fcfs.mean_latency()


def test_lengths_make_the_index():
    alike, heavy = OutputLengths(), OutputLengths()
    for n in range(200):
        alike.add(100)
        heavy.add(8 if n % 10 else 3000)
    reached = [index for index, start in zip(alike.indices, EDGES, strict=True) if start < 100]
    assert reached == sorted(reached, reverse=True)  # the nearer to its end the better
    assert 80 < reached[0] < 140
    # 16 tokens end nine of ten; who has not ended by then needs thousands
    assert heavy.indices[0] < 25
    assert heavy.indices[2] > 1000


def test_old_lengths_fade():
    lengths = OutputLengths()
    for length in (1000, 10):
        for _ in range(500):
            lengths.add(length)
    assert lengths.indices[0] < 20


def test_classes_are_learnt_apart_by_their_hint():
    # one seat, one tenant; those of class 2 are the short ones, and none says how long it is
    jobs = [job(f"j{n}", 3.0 * n, 5, 8 if n % 2 else 90, max_tokens=500, hints={"class": 1.0 + n % 2})
            for n in range(20)]  # fmt: skip
    jobs += [job("running", 100.0, 5, 30)]
    jobs += [job("long", 100.1, 5, 90, max_tokens=500, hints={"class": 1.0})]
    jobs += [job("short", 100.2, 5, 8, max_tokens=500, hints={"class": 2.0})]
    trial = Trial("gittins", jobs, step_time=STEP, max_num_seqs=1, policy_settings={"displacements": 0})
    assert trial["short"].token_times[0] < trial["long"].token_times[0]


@pytest.mark.parametrize(("displacements", "most"), [(0, 0), (1, 1), (8, 8)])
def test_a_request_gives_way_so_often_at_most(displacements, most):
    stream = [job(f"short{n}", 1.0 + n * 20 * STEP, 5, 5, max_tokens=500, tenant="chat") for n in range(40)]
    trial = Trial("gittins", [*stream, job("long", 0.0, 5, 300)], step_time=STEP, max_num_seqs=1,
                  policy_settings={"displacements": displacements, "ageing": 0.0})  # fmt: skip
    resumed = Counter(new.request_id for step in trial.steps for new in step.plan.new_requests if new.resumed)
    assert max(resumed.values(), default=0) == most


@pytest.mark.parametrize("ageing", [0.0, 100.0])
def test_ageing_bounds_how_long_short_ones_overtake_a_long_one(ageing):
    # both tenants are known; then one seat, a short request every 5 steps and one more, and a long one
    jobs = [job(f"known{n}", 3.0 * n, 5, 100 if n % 2 else 5, tenant="reports" if n % 2 else "chat") for n in range(20)]
    jobs += [job(f"short{n}", 100 + max(n - 1, 0) * 5 * STEP, 5, 5, tenant="chat") for n in range(100)]
    jobs += [job("long", 100.15, 5, 100, tenant="reports")]
    trial = Trial("gittins", jobs, step_time=STEP, max_num_seqs=1, policy_settings={"ageing": ageing})
    if ageing:
        assert trial["long"].ttft < 3.0
    else:
        assert trial["long"].ttft > 9.0


@pytest.mark.parametrize(("prompt_weight", "first"), [(0.0, "wordy"), (1.0, "curt")])
def test_prompts_count_by_their_weight(prompt_weight, first):
    jobs = [job("running", 0.0, 5, 20), job("wordy", 0.01, 300, 5), job("curt", 0.02, 5, 5)]
    settings = {"prompt_weight": prompt_weight, "displacements": 0}
    trial = Trial("gittins", jobs, step_time=STEP, max_num_seqs=1, policy_settings=settings)
    assert min(trial.of("wordy") + trial.of("curt"), key=lambda each: each.token_times[0]).name == first


def test_more_classes_than_it_can_hold_share_one():
    assert MOST_CLASSES >= 100
    random = Random(4)
    jobs = [job(f"j{n}", 0.0, 3, random.randrange(1, 3), tenant=f"tenant{n}") for n in range(MOST_CLASSES + 50)]
    trial = Trial("gittins", jobs, step_time=STEP, max_num_seqs=256)
    assert all(each.ended < inf for each in trial.of())
