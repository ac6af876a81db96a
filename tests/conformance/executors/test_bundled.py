"""The executors that come with enginecore keep the contract of executors."""

import pytest

from enginecore_conformance import check_component, parametrize

MULTIPROC = "executor:multiproc"
TWO_RANKS = {"tensor_parallel_size": 2, "num_threads": 1, "overlap": "on"}
TWO_STAGES = {"pipeline_parallel_size": 2, "num_threads": 1}


@parametrize("executor:oracle", settings={"depth": 3, "feeds_tokens": True})
def test_oracle(check):
    check()


@parametrize("executor:oracle", settings={"depth": 2, "two_phase": True, "step_time": 3600.0}, virtual=True)
def test_oracle_in_two_phases_on_a_virtual_clock(check):
    check()


@parametrize("executor:simulated", settings={"pipeline_parallel_size": 2})
def test_simulated(check):
    check()


@parametrize("executor:simulated", settings={"overlap": True, "scheduler_charge": "measured"}, virtual=True)
def test_simulated_on_a_virtual_clock(check):
    check()


@parametrize("executor:single", settings={"num_threads": 1})
def test_single(check):
    check()


@parametrize("executor:single", settings={"num_threads": 1, "ops": "torch"}, engine={"attention.use": "torch"})
def test_single_with_torch_alone(check):
    check()


def test_multiproc_in_short():
    """One test, so that workers are started once."""
    telling = [
        "company_changes_nothing",
        "a_preempted_request_goes_on_where_it_stood",
        "seeds_repeat",
        "sampled_tokens_are_fed_to_the_next_step",
        "unknown_methods_are_named",
    ]
    report = check_component(MULTIPROC, settings=TWO_RANKS, only=telling).require()
    assert {result.outcome for result in report.results} == {"passed"}


@pytest.mark.full
@parametrize(MULTIPROC, settings=TWO_RANKS)
def test_multiproc_with_two_ranks(check):
    check()


@pytest.mark.full
@parametrize(MULTIPROC, settings=TWO_STAGES)
def test_multiproc_with_two_stages(check):
    check()
