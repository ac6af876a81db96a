"""Orca (OSDI 2022): a batch of requests at a time waits for the longest of each; continuous batching does not."""

import pytest

from tests.lab.experiments.engines import constant_steps, drawn, outputs, run

STEP = 0.25
MEAN = 12


@pytest.fixture(scope="module")
def workload():
    """All there from the start, with outputs without memory."""
    return drawn(480, output={"kind": "geometric", "mean": MEAN})


def expected_longest(seats, mean):
    """Of so many geometric outputs."""
    alive, total, some_left = 1.0, 0.0, 1.0
    while some_left > 1e-12:
        some_left = 1 - (1 - alive) ** seats
        total += some_left
        alive *= 1 - 1 / mean
    return total


@pytest.mark.parametrize("seats", [8, 32])
def test_static_batches_take_as_long_as_the_longest_of_each(workload, seats):
    lengths = outputs(workload)
    batches = [lengths[first : first + seats] for first in range(0, len(lengths), seats)]
    static = run(workload, constant_steps(seats, STEP), "static_batch")
    assert static.makespan == sum(max(batch) for batch in batches) * STEP
    assert all(each.num_preemptions == 0 for each in static.requests)


@pytest.mark.parametrize("seats", [8, 32])
def test_continuous_batching_keeps_all_seats_taken_until_nobody_waits(workload, seats):
    lengths = outputs(workload)
    full = sum(lengths) / seats * STEP
    continuous = run(workload, constant_steps(seats, STEP))
    assert full <= continuous.makespan <= full + max(lengths) * STEP
    steps = continuous.steps
    assert all(
        waiting == 0 or size == seats for waiting, size in zip(steps.num_waiting, steps.num_requests, strict=True)
    )


def test_what_it_saves_is_the_longest_over_the_mean(workload):
    """And so the more the larger the batch: about the harmonic number of its size."""
    ratios = []
    for seats in (8, 32):
        static = run(workload, constant_steps(seats, STEP), "static_batch")
        ratios.append(static.makespan / (sum(outputs(workload)) / seats * STEP))
        assert ratios[-1] == pytest.approx(expected_longest(seats, MEAN) / MEAN, rel=0.1)
    assert ratios[0] < ratios[1]
