"""How requests come decides what is measured: the two best known ways of fooling oneself."""

from statistics import mean
from typing import Any

import pytest

from enginecore_lab.workload import Workload, WorkloadRequest
from enginecore_lab.workloads.transform import in_closed_loop
from tests.lab.experiments.engines import constant_steps, drawn, latencies, run
from tests.lab.making import on_oracle, virtually

PURE: dict[str, Any] = {"ageing": 0.0, "prompt_weight": 0.0}


class TestClosedLoopBias:
    """Schroeder, Wierman and Harchol-Balter (NSDI 2006): an order matters far less where clients wait for answers."""

    @pytest.fixture(scope="class")
    @staticmethod
    def workload():
        poisson = {"kind": "poisson", "rate": 9.0}
        return drawn(400, seed=2, arrivals=poisson, output={"kind": "lognormal", "mean": 10, "sigma": 1.3})

    def test_what_sjf_gains_in_an_open_loop_is_hardly_seen_in_a_closed_one(self, workload):
        engine = constant_steps(1, 0.01)
        closed = in_closed_loop(workload, 6, think_time=0.2)
        open_gain, closed_gain = (
            mean(latencies(run(each, engine))) / mean(latencies(run(each, engine, "sjf", **PURE)))
            for each in (workload, closed)
        )
        assert open_gain > 1.4
        assert 1.0 <= closed_gain < 1 + 0.5 * (open_gain - 1)


class TestCoordinatedOmission:
    """An engine stalls once for 30 seconds. Whoever waits for answers before asking again hardly notices."""

    stall = 30.0
    prompt = 30_000
    """Tokens of the prompt that takes so long, in one step."""

    def slow_share(self, **loop):
        """Of requests that take longer than 10 s, 8 of which come in a second."""
        requests = [
            WorkloadRequest(
                request_id=str(n), arrival=n / 8, num_prompt_tokens=self.prompt if n == 400 else 1, num_output_tokens=5
            )
            for n in range(1200)
        ]
        engine = on_oracle(
            0.02, token_time=self.stall / self.prompt, max_num_batched_tokens=32_768, oracle={"max_model_len": 40_000}
        )
        of = virtually(Workload(name="stall", requests=requests, **loop), engine)
        return mean(latency > 10 for latency in latencies(of))

    def test_an_open_loop_sees_all_who_came_meanwhile(self):
        """For 20 of 150 seconds whoever came had more than 10 s of the stall before them."""
        assert self.slow_share() == pytest.approx(20 / 150, abs=0.02)

    def test_a_closed_loop_sees_one_for_each_client(self):
        assert self.slow_share(loop="closed", concurrency=16) == pytest.approx(16 / 1200, abs=1 / 1200)
