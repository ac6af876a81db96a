"""What pictures are drawn from."""

from array import array
from math import inf, nan

import numpy as np
import pytest

from enginecore.messages import FinishReason
from enginecore_lab.report.series import (
    Levels,
    as_list,
    decode_tokens,
    ecdf,
    kv_usage,
    prefill_tokens,
    queue_length,
    tenant_service,
    time_edges,
)
from enginecore_lab.run import RequestRun, Run, StepSeries
from enginecore_lab.workload import Workload, WorkloadRequest
from tests.lab.report.example import add_step, make_info


def make_request(
    request_id,
    arrival,
    *,
    first=None,
    times=(),
    reason: FinishReason | None = FinishReason.STOP,
    tenant="",
    prompt=10,
    output=3,
):
    request = WorkloadRequest(
        request_id=request_id, arrival=arrival, num_prompt_tokens=prompt, num_output_tokens=output, tenant=tenant
    )
    ended = times[-1] if times else None
    return RequestRun(
        request, arrival, first_scheduled=first, token_times=array("d", times), ended=ended, finish_reason=reason
    )


def make_run(requests=(), steps=None):
    return Run(
        workload=Workload(name="by hand", requests=[each.request for each in requests]),
        info=make_info(),
        settings={},
        requests=requests,
        steps=steps or StepSeries(),
        virtual=True,
        wall_seconds=0.0,
    )


class TestEcdf:
    def test_of_few_values_every_one_is_a_step(self):
        found = ecdf(np.array([3.0, 1.0, 2.0, 2.0]))
        assert found.values.tolist() == [1, 2, 2, 3]
        assert found.shares.tolist() == [0.25, 0.5, 0.75, 1]

    def test_infinite_values_keep_it_below_one(self):
        found = ecdf(np.array([1.0, inf, 2.0, inf]))
        assert found.values.tolist() == [1, 2]
        assert found.shares.tolist() == [0.25, 0.5]

    def test_of_none_is_empty(self):
        assert len(ecdf(np.empty(0)).values) == len(ecdf(np.array([inf])).values) == 0

    def test_many_values_are_thinned_to_exact_points_with_both_ends_and_the_tail(self):
        values = np.random.default_rng(0).permutation(np.arange(100_000.0))
        found = ecdf(values, points=200)
        assert 100 < len(found.values) <= 200
        assert found.values[0] == 0
        assert found.values[-1] == 99_999
        np.testing.assert_array_equal(found.shares, (found.values + 1) / 100_000)
        assert np.sum(found.values > 99_900) >= 20
        assert np.diff(found.shares).max() < 0.011


class TestLevels:
    def test_the_mean_is_over_time(self):
        levels = Levels(np.array([1.0, 2.0, 4.0]), np.array([10.0, 4.0, 0.0]))
        assert levels.mean(np.array([0.0, 2.0, 3.0, 6.0])).tolist() == [5.0, 4.0, 4.0 / 3]

    def test_nothing_is_zero(self):
        assert Levels(np.empty(0), np.empty(0)).mean(time_edges(1.0, 2)).tolist() == [0, 0]

    def test_a_level_holds_until_the_end(self):
        assert Levels(np.array([0.0]), np.array([7.0])).mean(np.array([100.0, 200.0])).tolist() == [7]

    def test_edges_of_a_run_that_took_no_time(self):
        assert time_edges(0.0, 2).tolist() == [0, 0.5, 1]


class TestOverTime:
    def test_queue_and_usage_hold_from_step_to_step(self):
        steps = StepSeries()
        add_step(steps, 0.0, 1.0, num_waiting=4, num_free_blocks=450)
        add_step(steps, 1.0, 2.0, num_waiting=0, num_free_blocks=600)
        run = make_run(steps=steps)
        edges = np.array([0.0, 1.0, 2.0, 3.0])
        assert queue_length(run).mean(edges).tolist() == [0, 4, 0]
        assert kv_usage(run).mean(edges).tolist() == [0, 0.25, 0]

    def test_tokens_count_while_their_step_is_under_way(self):
        steps = StepSeries()
        add_step(steps, 0.0, 1.0, num_decodes=8)
        add_step(steps, 2.0, 4.0, num_decodes=2, num_prefill_tokens=512)
        run = make_run(steps=steps)
        edges = np.array([0.0, 2.0, 3.0, 5.0])
        assert decode_tokens(run).mean(edges).tolist() == [4, 2, 1]
        assert prefill_tokens(run).mean(edges).tolist() == [0, 512, 256]

    def test_batches_in_flight_together_add_up(self):
        steps = StepSeries()
        add_step(steps, 0.0, 2.0, num_decodes=3)
        add_step(steps, 1.0, 3.0, num_decodes=5)
        assert decode_tokens(make_run(steps=steps)).mean(np.array([0.0, 1.0, 2.0, 3.0])).tolist() == [3, 8, 5]


class TestTenantService:
    def test_prompts_count_when_scheduled_and_output_tokens_twice(self):
        run = make_run(
            [
                make_request("a", 0.0, first=0.5, times=[1.5, 2.5, 2.6], tenant="x", prompt=100),
                make_request("b", 0.0, first=1.5, times=[2.5], tenant="y", prompt=10),
            ]
        )
        found = tenant_service(run, np.array([0.0, 1.0, 2.0, 3.0]))
        assert {name: given.tolist() for name, given in found.items()} == {"x": [100, 102, 106], "y": [0, 10, 12]}

    def test_tenants_are_in_order_of_what_they_ask_for_whatever_came_of_it(self):
        run = make_run(
            [make_request("a", 0.0, tenant="small"), make_request("b", 0.0, tenant="big", prompt=1000, reason=None)]
        )
        assert list(tenant_service(run, time_edges(1.0))) == ["big", "small"]

    def test_of_the_many_that_ask_for_least_the_mean_is_shown(self):
        requests = [
            make_request(str(place), 0.0, first=0.5, tenant=f"t{place}", prompt=100 - place, reason=None)
            for place in range(5)
        ]
        found = tenant_service(make_run(requests), np.array([0.0, 1.0]), at_most=3)
        assert {name: given.tolist() for name, given in found.items()} == {
            "t0": [100],
            "t1": [99],
            "3 others, mean": [97],
        }

    def test_without_tenants_there_is_one_nameless_one(self):
        assert list(tenant_service(make_run([make_request("a", 0.0)]), time_edges(1.0))) == ["(no tenant)"]


def test_numbers_for_json_have_six_digits_and_no_infinities():
    assert as_list(np.array([1 / 3, 123456789.0, inf, nan, 0.0])) == [0.333333, 123457000.0, None, None, 0.0]


@pytest.mark.parametrize("column", ["started", "settled"])
def test_pictures_leave_the_run_as_it_is(column):
    steps = StepSeries()
    add_step(steps, 0.0, 1.0, num_decodes=8)
    run = make_run(steps=steps)
    decode_tokens(run).mean(time_edges(1.0))
    assert len(getattr(run.steps, column)) == 1
