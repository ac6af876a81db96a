"""Workloads that several policies are tried on: Poisson arrivals, and outputs of lengths that nobody is told."""

from functools import cache
from random import Random

import pytest

from tests.schedulers.lab import Trial, job

STEP = 0.02
SEATS = 4
SEEDS = [1, pytest.param(2, marks=pytest.mark.full)]
LONGEST = 600
LIMITS = {"step_time": STEP, "token_time": STEP / 256, "max_num_seqs": SEATS, "max_num_batched_tokens": 256}


def heavy_tailed(seed, count=100):
    """Most are short, a few very long."""
    random = Random(seed)
    return [min(int(8 * random.paretovariate(1.1)), LONGEST) for _ in range(count)]


def much_alike(seed, count=100):
    random = Random(seed)
    return [random.randrange(30, 50) for _ in range(count)]


def two_kinds(seed, count=100):
    """Short and long ones in turn."""
    random = Random(seed)
    return [random.randrange(80, 120) if n % 2 else random.randrange(4, 12) for n in range(count)]


def exact(length):
    return length


def rough(length):
    """Off by a factor of up to two, either way."""
    return length * 2 ** Random(length).uniform(-1, 1)


def poisson(lengths, *, seed, load, seats=SEATS, predict=rough, tenants=("",)):
    """A request for each length, at such a rate that the seats are taken for that share of the time.

    Each says what `predict` makes of its length; the tenants take turns.
    """
    random = Random(seed)
    rate = load * seats / (sum(lengths) / len(lengths) * STEP)
    at, jobs = 0.0, []
    for n, length in enumerate(lengths):
        at += random.expovariate(rate)
        hints = {"predicted_output_tokens": predict(length)}
        tenant = tenants[n % len(tenants)]
        prompt = random.randrange(8, 40)
        jobs.append(job(f"j{n}", at, prompt, length, max_tokens=LONGEST, hints=hints, tenant=tenant))
    return jobs


@cache
def tried(policy, law, seed, *, load=0.95, predict=rough, tenants=("",)):
    """A policy on four seats; made once for all tests."""
    jobs = poisson(law(seed), seed=seed, load=load, predict=predict, tenants=tenants)
    return Trial(policy, jobs, **LIMITS)


def needed_tokens(trial):
    """Tokens that had to be computed; what was computed beyond that was lost in preemptions."""
    return sum(len(each.request.prompt_token_ids) + len(each.token_times) - 1 for each in trial.of())
