"""`lpm`: more of the prompts is found in a cache that is too small for all, and what is not cached does not starve."""

from random import Random

import pytest

from tests.schedulers.lab import VOCABULARY, Trial, job

STEP = 0.02
GROUPS, EACH, PREFIX, REST = 12, 8, 256, 16


def tokens(random, count):
    return [random.randrange(VOCABULARY) for _ in range(count)]


def groups():
    """Requests that share one of twelve prefixes of 16 blocks, all mixed up."""
    random = Random(1)
    prefixes = [tokens(random, PREFIX) for _ in range(GROUPS)]
    order = [group for group in range(GROUPS) for _ in range(EACH)]
    random.shuffle(order)
    return [job(f"j{n}", n * 1e-4, prefixes[group] + tokens(random, REST), 8) for n, group in enumerate(order)]


def tried(policy, jobs, num_kv_blocks=64, **settings):
    return Trial(policy, jobs, step_time=STEP, token_time=0.0002, max_num_seqs=2, num_kv_blocks=num_kv_blocks,
                 policy_settings=settings)  # fmt: skip


@pytest.mark.parametrize(("num_kv_blocks", "at_least", "fcfs_at_most"), [(64, 0.7, 0.35), (96, 0.75, 0.5)])
def test_more_is_found_in_a_cache_that_is_too_small_for_all(num_kv_blocks, at_least, fcfs_at_most):
    trial, fcfs = tried("lpm", groups(), num_kv_blocks), tried("fcfs", groups(), num_kv_blocks)
    assert trial.hit_share >= at_least
    assert fcfs.hit_share <= fcfs_at_most
    assert trial.makespan < 0.9 * fcfs.makespan
    assert trial.mean_latency() < 0.9 * fcfs.mean_latency()


def test_in_a_cache_that_holds_everything_it_costs_nothing():
    trial, fcfs = tried("lpm", groups(), 1024), tried("fcfs", groups(), 1024)
    assert trial.hit_share >= fcfs.hit_share
    assert trial.makespan <= fcfs.makespan + STEP


@pytest.mark.parametrize("patience", [4, 16])
def test_a_steady_stream_of_cached_prompts_does_not_starve_a_cold_one(patience):
    """Field case 17."""
    random = Random(2)
    hot = tokens(random, 64)
    # one seat, a request of 5 tokens every 5 steps and one more: there is always one that waits
    stream = [job(f"hot{n}", max(n - 1, 0) * 5 * STEP, hot + tokens(random, 5), 5) for n in range(100)]
    jobs = [*stream, job("cold", 0.15, 69, 5)]
    trial = Trial("lpm", jobs, step_time=STEP, max_num_seqs=1, policy_settings={"patience": patience})
    assert patience * 5 * STEP <= trial["cold"].ttft <= (patience + 4) * 5 * STEP


@pytest.mark.parametrize("patience", [1, 4])
def test_nobody_waits_longer_than_its_place_and_the_patience_say(patience):
    trial = tried("lpm", groups(), patience=patience)
    order = sorted(trial.of(), key=lambda each: each.token_times[0])
    overtaken = [place - int(each.name[1:]) for place, each in enumerate(order)]
    assert all(late <= (int(each.name[1:]) + 1) * patience for late, each in zip(overtaken, order, strict=True))
    assert max(overtaken) > 0


@pytest.mark.parametrize(("window", "order"), [(1, ["hit", "miss", "hit again"]), (8, ["hit", "hit again", "miss"])])
def test_only_the_window_is_compared(window, order):
    random = Random(3)
    shared = tokens(random, 64)
    jobs = [job("hit", 0.0, [*shared, 1], 5), job("miss", 0.01, 65, 5), job("hit again", 0.02, [*shared, 2], 5)]
    trial = Trial("lpm", jobs, step_time=STEP, max_num_seqs=1, policy_settings={"window": window})
    assert [each.name for each in sorted(trial.of(), key=lambda each: each.token_times[0])] == order
