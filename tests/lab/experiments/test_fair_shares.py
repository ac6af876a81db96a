"""VTC (OSDI 2024): between tenants that both have requests waiting, service differs by a constant, however long."""

import pytest

from enginecore_lab.workload import Workload, WorkloadRequest
from tests.lab.experiments.engines import constant_steps, metric, run

BLOCKS = 64
MEMORY = BLOCKS * 16
BALANCED = ((32, 32), (32, 32))
"""Prompt and output tokens of the two tenants' requests."""


def two_tenants(seconds, shapes=BALANCED):
    """One asks at 600 and one at 1,800 requests a minute, each for more than it can get."""
    requests = [
        WorkloadRequest(
            request_id=f"{tenant} {n}",
            arrival=n / rate,
            num_prompt_tokens=prompt,
            num_output_tokens=output,
            tenant=tenant,
        )
        for tenant, rate, (prompt, output) in zip("ab", (10, 30), shapes, strict=True)
        for n in range(rate * seconds)
    ]
    return Workload(name="two tenants", requests=sorted(requests, key=lambda each: each.arrival))


def served(policy, seconds, shapes=BALANCED):
    engine = constant_steps(256, 0.1, num_kv_blocks=BLOCKS, max_num_batched_tokens=512)
    return run(two_tenants(seconds, shapes), engine, policy)


@pytest.mark.parametrize("shapes", [BALANCED, ((256, 32), (32, 256)), ((128, 16), (16, 128))])
def test_the_difference_stays_within_the_bound(shapes):
    """Twice the larger of a prompt's charge and that of as many output tokens as the memory holds."""
    longest_prompt = max(prompt for prompt, _ in shapes)
    of = served("vtc", 4, shapes)
    assert 0 < metric("service_difference", of) <= 2 * max(1.0 * longest_prompt, 2.0 * MEMORY)
    assert metric("jain_service", of) > 0.9


def test_it_does_not_grow_with_time():
    short, long = (metric("service_difference", served("vtc", seconds)) for seconds in (10, 20))
    assert long <= 2 * 2.0 * MEMORY
    assert long < 1.2 * short


def test_in_order_of_arrival_it_grows_without_bound():
    short, long = (metric("service_difference", served("fcfs", seconds)) for seconds in (10, 20))
    assert short > 2 * 2.0 * MEMORY
    assert long == pytest.approx(2 * short, rel=0.1)


def test_in_order_of_arrival_shares_are_those_of_the_rates():
    of_one_and_three = (1 + 3) ** 2 / (2 * (1**2 + 3**2))
    assert metric("jain_service", served("fcfs", 10)) == pytest.approx(of_one_and_three, abs=0.01)
