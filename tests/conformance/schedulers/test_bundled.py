"""The schedulers and victim choices that come with enginecore keep their contracts, and so does `Chaos`."""

import pytest

from enginecore.conformance import check_component, parametrize, prepare
from enginecore_schedulers import enginecore_components
from tests.conformance.schedulers.mutants import CHAOS

NAMES = sorted(each.name for each in enginecore_components() if each.kind == "scheduler")


@parametrize("scheduler:fcfs")
def test_fcfs(check):
    check()


@parametrize("scheduler:mlfq")
def test_mlfq(check):
    check()


@pytest.mark.full
@pytest.mark.parametrize("name", sorted({*NAMES} - {"fcfs", "mlfq"}))
def test_others(name):
    check_component(f"scheduler:{name}").require()


@pytest.mark.full
def test_beside_another_kv_cache_manager():
    check_component("scheduler:priority", engine={"kv_cache_manager.use": "radix", "eviction.use": "lfu"}).require()


@pytest.mark.full
def test_chaos():
    """What it draws depends on how often it is asked, and that on nothing but the traffic."""
    by_chance = {"wait_is_bounded": "it may starve anybody"}
    for check in prepare(CHAOS):
        if str(check) not in by_chance:
            check()


@pytest.mark.parametrize("name", ["newest", *(pytest.param(name, marks=pytest.mark.full)
                                              for name in ("worst_rank", "least_computed", "largest"))])  # fmt: skip
def test_victims(name):
    for check in prepare(f"victim:{name}"):
        check()
