"""The kit catches every component with one bug, and finds nothing in the same components without it."""

import pytest

from enginecore.contracts import BrokenRule
from enginecore_conformance import check_component, prepare
from enginecore_conformance.kv_cache_managers.rules import CHECKS as MANAGER_RULES
from enginecore_conformance.schedulers.bench import SchedulerBench
from enginecore_conformance.schedulers.incidents import incidents
from enginecore_conformance.schedulers.traffic import grid, stages
from enginecore_conformance.subject import Options, Subject
from enginecore_schedulers.prefill_first import PrefillFirst
from enginecore_schedulers.priority import Priority
from tests.conformance.mutants import KV_CACHE_MANAGERS, SCHEDULERS
from tests.conformance.mutants.assembly import Assembled, Patient, Plain, manager, scheduler

STAGED = {
    "accepts_the_impossible": "impossible_requests_are_refused",
    "lets_a_request_outgrow_the_pool": "lone_requests_may_fill_the_pool",
    "never_forgets": "nothing_is_kept_of_the_ended",
    "counts_no_preemptions": "preemptions_are_counted",
    "skips_the_heavy_for_ever": "light_requests_do_not_starve_a_heavy_one",
    "never_looks_up": "prefix_hits_are_used",
    "ranks_with_nan": "prefix_hits_are_used",
    "refuses_with_yes": "long_prompts_are_split",
    "keeps_books_for_ever": "nothing_is_kept_of_the_ended",
    "needs_hints": "prefix_hits_are_used",
    "shares_books_of_the_class": "engines_share_nothing",
    "tosses_a_coin": "same_arrivals_give_the_same_plans",
    "ranks_by_hash": "processes_plan_alike",
    "delays_by_the_wall_clock": "real_time_does_not_count",
    "last_come_first_served": "wait_is_bounded",
    "shortest_for_ever": "wait_is_bounded",
    "ignores_its_setting": "setting_prefill_chunk_size_is_honoured",
    "swaps_for_ever": "long_prompts_do_not_thrash",
}
"""Schedulers that a check of its own gives away; the kit's traces do for the others."""
DRAWN = {
    "caches_all_the_same": "only_what_is_published_is_hit",
    "gives_what_there_is": "all_or_nothing",
    "says_that_it_has_reset": "reset_forgets_all_or_nothing",
    "resets_nothing": "reset_forgets_all_or_nothing",
}
"""KV cache managers that only drawn traces give away."""
GOOD = {
    "scheduler": scheduler(Assembled, name="assembled"),
    "priority": scheduler(Assembled, policy=Priority, name="assembled_priority"),
    "prefill_first": scheduler(Assembled, policy=PrefillFirst, name="assembled_prefill_first"),
    "patient": scheduler(Assembled, policy=Patient, name="assembled_patient"),
    "manager": manager(Plain, name="plain"),
}


def first_broken_rule(component):
    """Of the traces that the kit plays without drawing any, up to the first that breaks a rule."""
    bench = SchedulerBench(Subject.find(component, Options()))
    given = bench.capabilities
    for trace in (*incidents(given), *stages(given), *grid(given)):
        try:
            bench.play(trace)
        except BrokenRule as error:
            return error.rule
    return None


def test_there_are_enough_of_both_and_each_says_what_is_wrong():
    assert len(SCHEDULERS) >= 70
    assert len(KV_CACHE_MANAGERS) >= 35
    components = [component for component, _ in (*SCHEDULERS.values(), *KV_CACHE_MANAGERS.values())]
    assert all(component.summary for component in components)
    cases = {case for _, case in (*SCHEDULERS.values(), *KV_CACHE_MANAGERS.values())} - {None}
    assert len(cases) >= 35


@pytest.mark.parametrize("name", sorted(SCHEDULERS.keys() - STAGED))
def test_a_trace_gives_a_scheduler_away(name):
    assert first_broken_rule(SCHEDULERS[name][0])


@pytest.mark.parametrize("name", sorted(STAGED))
def test_a_check_gives_a_scheduler_away(name):
    [check] = prepare(SCHEDULERS[name][0], only=[STAGED[name]])
    assert check.run().outcome == "failed"


@pytest.mark.parametrize("name", sorted(KV_CACHE_MANAGERS.keys() - DRAWN))
def test_a_check_gives_a_kv_cache_manager_away(name):
    drawn = {check.name for check in MANAGER_RULES}
    staged = [check for check in prepare(KV_CACHE_MANAGERS[name][0]) if str(check) not in drawn]
    assert any(check.run().outcome == "failed" for check in staged)


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(DRAWN))
def test_drawn_traces_give_a_kv_cache_manager_away(name):
    [check] = prepare(KV_CACHE_MANAGERS[name][0], only=[DRAWN[name]])
    assert check.run().outcome == "failed"


LONGER = [pytest.param(name, marks=pytest.mark.full) for name in GOOD if name != "manager"]


@pytest.mark.parametrize("name", ["manager", *LONGER])
def test_without_their_bug_they_keep_every_rule(name):
    check_component(GOOD[name]).require()


def test_no_trace_breaks_a_good_scheduler():
    assert first_broken_rule(GOOD["scheduler"]) is None


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "name"),
    [*(("scheduler", name) for name in SCHEDULERS), *(("kv_cache_manager", name) for name in KV_CACHE_MANAGERS)],
)
def test_the_whole_kit_reports_them(kind, name):
    component, _ = (SCHEDULERS if kind == "scheduler" else KV_CACHE_MANAGERS)[name]
    report = check_component(component)
    assert report.failed
    for result in report.failed:
        assert result.seen
        assert result.right


@pytest.mark.full
def test_a_heavy_import_is_seen():
    from tests.conformance.mutants.heavy import COMPONENT

    [result] = check_component(COMPONENT, only=["importing_it_is_light"]).failed
    assert "torch" in result.seen
