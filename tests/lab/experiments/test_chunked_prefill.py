"""Sarathi-Serve (OSDI 2024): whole prompts before decodes stall running requests, pieces beside decodes do not."""

import numpy as np
import pytest

from tests.lab.experiments.engines import at_once, azure, metric, run, simulated

WHOLE = simulated(max_num_batched_tokens=8192, max_model_len=8192)
PIECES = simulated(max_num_batched_tokens=512, max_model_len=8192)


@pytest.fixture(scope="module")
def runs():
    workload = azure(300)
    return run(workload, WHOLE, "prefill_first"), run(workload, PIECES)


def test_the_tail_of_gaps_between_tokens_is_far_shorter(runs):
    whole, pieces = runs
    assert metric("itl_p99", whole) > 3 * metric("itl_p99", pieces)
    assert metric("itl_max", whole) > 3 * metric("itl_max", pieces)


def test_a_request_never_waits_longer_than_one_step(runs):
    """The longest gap is the longest step that a decode took part in, to the bit, as nobody is preempted."""
    _, pieces = runs
    steps = pieces.steps
    took = np.array(steps.settled) - np.array(steps.started)
    assert metric("preempted_share", pieces) == 0
    assert metric("itl_max", pieces) == took[np.array(steps.num_decodes) > 0].max()


def test_it_costs_time_to_the_first_token(runs):
    whole, pieces = runs
    assert metric("ttft_p50", whole) < metric("ttft_p50", pieces)


def test_it_costs_no_throughput():
    flood = at_once(azure(500))
    whole, pieces = run(flood, WHOLE, "prefill_first"), run(flood, PIECES)
    assert metric("output_tokens_per_s", pieces) == pytest.approx(metric("output_tokens_per_s", whole), rel=0.05)
