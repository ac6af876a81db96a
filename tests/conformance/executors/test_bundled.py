"""The executors that come with enginecore keep the contract of executors."""

import pytest

from enginecore.clock import VirtualClock
from enginecore.conformance.executors import failing, life, parametrize, prepare

TWO_RANKS = {"tensor_parallel_size": 2, "num_threads": 1, "overlap": "on"}
TWO_STAGES = {"pipeline_parallel_size": 2, "num_threads": 1}


@parametrize("oracle", settings={"depth": 3, "feeds_tokens": True})
def test_oracle(check):
    check()


@parametrize("oracle", settings={"depth": 2, "two_phase": True, "step_time": 3600.0}, clock=VirtualClock)
def test_oracle_in_two_phases_on_a_virtual_clock(check):
    check()


@parametrize("single", settings={"num_threads": 1})
def test_single(check):
    check()


@parametrize("single", settings={"num_threads": 1, "attention": "torch", "ops": "torch"})
def test_single_with_torch_alone(check):
    check()


def builds_its_own(item):
    """Whether an executor of its own is started for a check."""
    return item.check in (*vars(failing).values(), *vars(life).values())


def cases(settings, **options):
    return [
        pytest.param(item, id=str(item), marks=[pytest.mark.full] if builds_its_own(item) else [])
        for item in prepare("multiproc", settings=settings, **options)
    ]


@pytest.mark.parametrize("check", cases(TWO_RANKS))
def test_multiproc_with_two_ranks(check):
    check()


@pytest.mark.full
@pytest.mark.parametrize("check", cases(TWO_STAGES))
def test_multiproc_with_two_stages(check):
    check()
