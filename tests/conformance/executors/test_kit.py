"""The kit's front doors, and what it takes from an executor by itself."""

import json
from typing import Any

import psutil
import pytest

from enginecore.clock import VirtualClock
from enginecore.conformance.executors import CHECKS, check_executor, parametrize, prepare
from enginecore.conformance.executors.tiny_llama import write_tiny_llama
from enginecore.errors import ConfigurationError, InvariantError
from tests.conformance.executors.mutants import MUTANTS, PLAIN, PLAIN_WITH_WORKERS, books


def test_every_check_states_its_rule_and_has_a_name_of_its_own():
    assert len({item.name for item in CHECKS}) == len(CHECKS) == 36
    assert all(item.rule.endswith(".") for item in CHECKS)


def test_every_check_is_one_that_some_bug_fails():
    assert {item.name for item in CHECKS} == {mutant.caught_by for mutant in MUTANTS}


def test_a_report_of_an_executor_with_a_bug():
    report = check_executor(MUTANTS[books.CountsInGigabytes], skip={"seeds_repeat": "for reasons"})
    assert [result.check.name for result in report.failed] == ["memory_is_a_number_of_bytes"]
    assert "0.5" in report.failed[0].seen
    skipped = {result.check.name: result.reason for result in report.results if result.outcome == "skipped"}
    assert skipped["seeds_repeat"] == "for reasons"
    assert skipped["the_death_of_a_worker_is_noticed"] == "it is for executors with worker processes"
    with pytest.raises(InvariantError, match=r"executor 'CountsInGigabytes': \d+ of 36 checks passed"):
        report.require()


def test_a_report_of_an_executor_whose_steps_take_an_hour():
    report = check_executor("oracle", settings={"step_time": 3600.0}, clock=VirtualClock).require()
    assert sum(result.outcome == "passed" for result in report.results) == 28


def test_checks_become_test_cases():
    mark: Any = parametrize(PLAIN, skip={"seeds_repeat": "for reasons"})
    cases = {case.id: case.marks for case in mark.args[1]}
    assert list(cases) == [item.name for item in CHECKS]
    assert [mark.kwargs for mark in cases["seeds_repeat"]] == [{"reason": "for reasons"}]


def test_what_is_wrong_is_said_before_anything_is_built():
    with pytest.raises(ConfigurationError, match=r"'singel'.*did you mean single\?"):
        prepare("singel")
    with pytest.raises(ConfigurationError, match="num_threads"):
        prepare("single", settings={"num_threads": 0})
    with pytest.raises(ConfigurationError, match="no check of this component"):
        prepare("single", skip={"seeds_repaet": "a slip"})


def test_an_executor_that_cannot_be_built_fails_each_check(tmp_path):
    report = check_executor("single", model=str(tmp_path / "nothing"))
    assert len(report.failed) == len(report.results) == 36
    assert {"is not found" in result.seen for result in report.failed} == {True}


def test_an_executor_with_processes_is_checked_for_their_death_and_none_is_left():
    before = {child.pid for child in psutil.Process().children()}
    report = check_executor(PLAIN_WITH_WORKERS, patience=10.0)
    passed = [result.check.name for result in report.results if result.outcome == "passed"]
    assert "the_death_of_a_worker_is_noticed" in passed
    assert {child.pid for child in psutil.Process().children()} == before


def test_workers_may_be_named():
    report = check_executor(PLAIN_WITH_WORKERS, patience=10.0, workers=lambda executor: [])
    reasons = {result.check.name: result.reason for result in report.results}
    assert reasons["the_death_of_a_worker_is_noticed"] == "it is for executors with worker processes"


def test_the_tiny_model_is_the_same_each_time(tmp_path):
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        write_tiny_llama(folder)
    one, two = ([file.read_bytes() for file in sorted(folder.iterdir())] for folder in folders)
    assert one == two
    assert json.loads(one[0])["architectures"] == ["LlamaForCausalLM"]
    assert len(one[1]) < 1 << 18
