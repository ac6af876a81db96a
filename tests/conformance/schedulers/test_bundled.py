"""The schedulers and victim choices that come with enginecore keep their contracts, and so does `Chaos`."""

import pytest

from enginecore_conformance import check_component, parametrize, prepare
from enginecore_conformance.schedulers import rules
from enginecore_schedulers import enginecore_components
from tests.conformance.schedulers.mutants import CHAOS

NAMES = sorted(each.name for each in enginecore_components() if each.kind == "scheduler")


@parametrize("scheduler:fcfs")
def test_fcfs(check):
    check()


PLAYED = {each.name for each in rules.CHECKS}
"""Those that traces are played for."""


@pytest.mark.parametrize("check", [item for item in prepare("scheduler:mlfq") if str(item) not in PLAYED], ids=str)
def test_mlfq(check):
    check()


@pytest.mark.full
@pytest.mark.parametrize("name", sorted({*NAMES} - {"fcfs"}))
def test_others(name):
    check_component(f"scheduler:{name}").require()


@pytest.mark.full
def test_beside_another_kv_cache_manager():
    check_component("scheduler:priority", engine={"kv_cache_manager.use": "radix", "eviction.use": "lfu"}).require()


@pytest.mark.full
def test_chaos():
    """What it draws depends on how often it is asked, and that on nothing but the traffic."""
    by_chance = ("wait_is_bounded", "light_requests_do_not_starve_a_heavy_one")  # it may starve anybody
    for check in prepare(CHAOS):
        if str(check) not in by_chance:
            check()


@pytest.mark.parametrize("name", ["worst_rank", "newest", "least_computed", "largest"])
def test_victims(name):
    for check in prepare(f"victim:{name}", only=["it_names_a_candidate", "same_arrivals_give_the_same_plans"]):
        check()


@pytest.mark.full
@pytest.mark.parametrize("name", ["worst_rank", "newest", "least_computed", "largest"])
def test_schedulers_behind_victims(name):
    check_component(f"victim:{name}").require()
