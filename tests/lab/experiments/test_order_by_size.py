"""Shortest first: what queueing theory says of it, and what it costs the long ones."""

from functools import cache
from random import Random
from statistics import mean
from typing import Any

import numpy as np
import pytest

from enginecore.scheduling import RequestView, SchedulerView, SchedulingPolicy, policy_component
from tests.lab.experiments.engines import (
    arrivals,
    azure,
    constant_steps,
    drawn,
    latencies,
    outputs,
    queue_delays,
    run,
    simulated,
)
from tests.lab.experiments.queueing import fcfs_waits, pollaczek_khinchine, sjf_latencies, srpt_latencies

STEP = 0.125
MEAN = 8
RATE = 0.8 / (MEAN * STEP)
PURE: dict[str, Any] = {"ageing": 0.0, "prompt_weight": 0.0}


class TestOneServer:
    """One seat and equal steps: an engine is M/G/1, job for job."""

    @pytest.fixture(scope="class")
    @staticmethod
    def workload():
        poisson = {"kind": "poisson", "rate": RATE}
        return drawn(500, seed=3, arrivals=poisson, output={"kind": "lognormal", "mean": MEAN, "sigma": 1.2})

    def test_fcfs_waits_are_lindleys(self, workload):
        of = run(workload, constant_steps(1, STEP))
        waits = queue_delays(of)
        expected = fcfs_waits(arrivals(workload), [STEP * length for length in outputs(workload)])
        assert waits == pytest.approx(expected, abs=1e-9)

    def test_whose_mean_is_pollaczek_and_khinchines(self):
        """On more jobs than an engine would run in a second."""
        rng = np.random.default_rng(0)
        jobs = 300_000
        sizes = rng.lognormal(0.0, 0.8, jobs)
        rate = 0.8 / sizes.mean()
        waits = fcfs_waits(np.cumsum(rng.exponential(1 / rate, jobs)).tolist(), sizes.tolist())
        assert mean(waits) == pytest.approx(pollaczek_khinchine(rate, sizes), rel=0.05)

    def test_sjf_is_sjf(self, workload):
        of = run(workload, constant_steps(1, STEP), "sjf", **PURE)
        expected = sjf_latencies(arrivals(workload), [STEP * length for length in outputs(workload)])
        assert latencies(of) == pytest.approx(expected, abs=1e-9)

    def test_srpt_is_srpt(self, workload):
        """Told to look at every step, and that being displaced costs nothing."""
        of = run(workload, constant_steps(1, STEP), "srpt", margin=0.0, lease=1, **PURE)
        assert sum(each.num_preemptions for each in of.requests) > 50
        assert latencies(of) == pytest.approx(srpt_latencies(arrivals(workload), outputs(workload), STEP), abs=1e-9)

    def test_the_mean_gains_what_the_longest_lose(self, workload):
        engine = constant_steps(1, STEP)
        fcfs, sjf = run(workload, engine), run(workload, engine, "sjf", **PURE)
        srpt = run(workload, engine, "srpt", margin=0.0, lease=1, **PURE)
        assert mean(latencies(srpt)) < mean(latencies(sjf)) < mean(latencies(fcfs))
        assert max(latencies(srpt)) > max(latencies(sjf)) > max(latencies(fcfs))


class RandomOrder(SchedulingPolicy):
    """Knows nothing, and forgets who came first."""

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)

    def rank(self, request: RequestView, scheduler: SchedulerView) -> float:
        return self._random.random()


class LongestFirst(SchedulingPolicy):
    """The worst that can be made of knowing lengths."""

    def rank(self, request: RequestView, scheduler: SchedulerView) -> float:
        return -request.max_tokens


COMPONENTS = (policy_component("random", RandomOrder), policy_component("longest_first", LongestFirst))


class TestOverload:
    """Azure's conversations on an engine that is too small for them."""

    @staticmethod
    @cache
    def of(policy, **settings):
        engine = simulated(max_num_seqs=16, max_model_len=8192)
        return latencies(run(azure(400, rate_scale=2.0), engine, policy, components=COMPONENTS, **settings))

    def test_shortest_first_is_better_on_average_and_worse_for_the_longest(self):
        fcfs, sjf = self.of("fcfs"), self.of("sjf", **PURE)
        assert mean(sjf) < 0.8 * mean(fcfs)
        assert np.median(sjf) < 0.25 * np.median(fcfs)
        assert np.percentile(sjf, 95) > np.percentile(fcfs, 95)

    def test_an_order_that_knows_nothing_changes_the_spread_but_not_the_mean(self):
        """A conservation law: whoever goes ahead, somebody of the same kind waits."""
        fcfs, shuffled = self.of("fcfs"), [self.of("random", seed=seed) for seed in (0, 1)]
        assert mean(mean(each) for each in shuffled) == pytest.approx(mean(fcfs), rel=0.03)
        assert all(np.std(each) > np.std(fcfs) for each in shuffled)

    def test_longest_first_is_the_worst(self):
        assert mean(self.of("longest_first")) > 1.2 * mean(self.of("fcfs"))
