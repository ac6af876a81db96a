"""FastServe (NSDI 2026): sinking by attained service pays where outputs are heavy-tailed, and costs where they are not.

Serving who has been served least is best if and only if the longer a request has run the longer it will go on (Righter
and Shanthikumar, 1989).
"""

from statistics import mean, median
from typing import Any

import pytest

from tests.lab.experiments.engines import azure, constant_steps, drawn, latencies, run, simulated, ttfts

STEP = 0.01
MEAN = 10
PURE: dict[str, Any] = {"ageing": 0.0, "prompt_weight": 0.0}
POLICIES: dict[str, dict[str, Any]] = {
    "fcfs": {},
    "sjf": PURE,
    "srpt": {**PURE, "margin": 0.0, "lease": 1},
    "mlfq": {"quantum": 1, "levels": 12, "patience": 1e9, "prompt_weight": 0.0},
}


def mean_latencies(law, **output):
    """Of each policy, with one seat whose work is never lost."""
    poisson = {"kind": "poisson", "rate": 0.85 / (MEAN * STEP)}
    workload = drawn(400, seed=1, arrivals=poisson, output={"kind": law, **output})
    engine = constant_steps(1, STEP)
    return {policy: mean(latencies(run(workload, engine, policy, **of))) for policy, of in POLICIES.items()}


def test_where_all_are_equal_it_is_the_worst():
    of = mean_latencies("constant", tokens=MEAN)
    assert of["mlfq"] > 1.3 * of["fcfs"]
    assert of["fcfs"] == pytest.approx(of["sjf"]) == pytest.approx(of["srpt"])


def test_where_outputs_have_no_memory_it_changes_nothing():
    of = mean_latencies("geometric", mean=MEAN)
    assert of["mlfq"] == pytest.approx(of["fcfs"], rel=0.03)
    assert of["srpt"] < of["sjf"] < of["fcfs"]


@pytest.mark.parametrize("law", [{"law": "lognormal", "sigma": 1.5}, {"law": "pareto", "alpha": 1.3}])
def test_where_a_few_are_very_long_it_beats_knowing_the_lengths_without_interrupting(law):
    of = mean_latencies(mean=MEAN, **law)
    assert of["srpt"] <= of["mlfq"] < of["sjf"] < of["fcfs"]


def test_joining_further_down_keeps_long_prompts_from_holding_up_short_ones():
    workload = azure(300, rate_scale=1.15)
    engine = simulated(max_num_batched_tokens=512, max_model_len=8192)
    naive = run(workload, engine, "mlfq", prompt_weight=0.0, patience=1e9)
    skipping = run(workload, engine, "mlfq", prompt_weight=0.02, patience=1e9)
    assert mean(ttfts(skipping)) < mean(ttfts(naive))
    assert median(ttfts(skipping)) < median(ttfts(naive))
