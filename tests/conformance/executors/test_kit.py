"""What the kit for executors says through the kits' front doors, and what it takes from an executor by itself."""

import json
from dataclasses import replace
from typing import Any
from unittest import SkipTest

import psutil
import pytest
from typer.testing import CliRunner

from enginecore.cli.app import build_app
from enginecore.errors import ConfigurationError, InvariantError
from enginecore_conformance import check_component, parametrize, prepare
from enginecore_conformance.executors import CHECKS
from enginecore_conformance.executors.lending import Lender
from enginecore_conformance.executors.tiny_llama import write_tiny_llama
from tests.conformance.executors.mutants import MUTANTS, PLAIN, PLAIN_WITH_WORKERS, books

WORKERS_DIE = "the_death_of_a_worker_is_noticed"
NO_WORKERS = "not applicable: it is for executors with worker processes"


def outcomes(report):
    return {result.check.name: (result.outcome, result.reason) for result in report.results}


def test_every_check_states_its_rule_and_has_a_name_of_its_own():
    assert len({item.name for item in CHECKS}) == len(CHECKS) == 41
    assert all(item.rule.endswith(".") for item in CHECKS)


def test_every_check_is_one_that_some_bug_fails():
    assert {item.name for item in CHECKS} == {mutant.caught_by for mutant in MUTANTS}


def test_a_report_of_an_executor_with_a_bug():
    report = check_component(MUTANTS[books.CountsInGigabytes])
    assert [result.check.name for result in report.failed] == ["memory_is_a_number_of_bytes"]
    assert "0.5" in report.failed[0].seen
    with pytest.raises(InvariantError, match=r"executor 'CountsInGigabytes': \d+ of 41 checks passed"):
        report.require()


def test_opt_outs_are_strict_where_a_check_applies():
    needed, needless = "memory_is_a_number_of_bytes", "seeds_repeat"
    skip: dict[str, str] = dict.fromkeys((needed, needless, WORKERS_DIE), "for reasons")
    seen = outcomes(check_component(MUTANTS[books.CountsInGigabytes], skip=skip, only=skip))
    assert seen == {
        needed: ("skipped", "for reasons"),
        needless: ("failed", ""),
        WORKERS_DIE: ("skipped", NO_WORKERS),
    }


def test_a_report_of_an_executor_whose_steps_take_an_hour():
    report = check_component("executor:oracle", settings={"step_time": 3600.0}, virtual=True).require()
    assert sum(result.outcome == "passed" for result in report.results) == 31


def test_checks_become_test_cases():
    mark: Any = parametrize(PLAIN, skip={"seeds_repeat": "for reasons"})
    cases = {case.id: case for case in mark.args[1]}
    assert list(cases) == [item.name for item in CHECKS]
    [xfail] = cases["seeds_repeat"].marks
    assert (xfail.name, xfail.kwargs["reason"], xfail.kwargs["strict"]) == ("xfail", "for reasons", True)
    with pytest.raises(SkipTest, match=NO_WORKERS):
        cases[WORKERS_DIE].values[0]()


def test_the_command_says_what_is_not_applicable():
    arguments = ["check", "executor:oracle", "--only", WORKERS_DIE, "--only", "seeds_repeat"]
    done = CliRunner().invoke(build_app(["check"]), arguments)
    assert done.exit_code == 0
    assert f"skipped {WORKERS_DIE}: {NO_WORKERS}" in done.output
    assert "executor:oracle: 1 of 2 checks passed, 1 skipped" in done.output


def test_what_is_wrong_is_said_before_anything_is_built():
    with pytest.raises(ConfigurationError, match=r"'singel'.*did you mean single\?"):
        prepare("executor:singel")
    with pytest.raises(ConfigurationError, match="num_threads"):
        prepare("executor:single", settings={"num_threads": 0})
    with pytest.raises(ConfigurationError, match="no check of this component"):
        prepare("executor:single", skip={"seeds_repaet": "a slip"})
    with pytest.raises(ConfigurationError, match=r"has its own block_size = 8: leave it out of engine"):
        prepare("executor:single", engine={"block_size": 16})
    with pytest.raises(TypeError, match="virtual"):
        prepare("scheduler:fcfs", virtual=True)


def contexts(**options):
    """What an executor is told."""
    found = []

    def make(settings, context):
        found.append(context)
        return PLAIN.factory(settings, context)

    component = replace(PLAIN, name="telling", factory=make)
    check_component(component, only=["memory_is_a_number_of_bytes"], **options).require()
    return found


def test_the_settings_of_the_engine_say_what_it_runs():
    [told] = contexts(engine={"model": "mine", "dtype": "bfloat16", "device": "cuda:1", "seed": 7})
    assert (told.model, told.dtype, told.device, told.seed) == ("mine", "bfloat16", "cuda:1", 7)
    [told] = contexts()
    assert (told.dtype, told.device, told.block_size) == ("float32", "auto", 8)
    assert "ec-tiny-llama-" in told.model


def test_an_executor_is_shared_until_a_check_fails(monkeypatch):
    built = []
    build = Lender.build

    def counted(lender):
        built.append(lender)
        return build(lender)

    monkeypatch.setattr(Lender, "build", counted)
    names = ["what_it_declares_is_constant", "memory_is_a_number_of_bytes", "seeds_repeat", "unknown_methods_are_named"]
    check_component(PLAIN, only=names).require()
    assert len(built) == 1
    check_component(MUTANTS[books.CountsInGigabytes], only=names)
    assert len(built) == 3


def test_an_executor_that_cannot_be_built_fails_each_check(tmp_path):
    report = check_component("executor:single", engine={"model": str(tmp_path / "nothing")})
    assert len(report.failed) == len(report.results) == 41
    assert {"is not found" in result.seen for result in report.failed} == {True}


def test_an_executor_with_processes_is_checked_for_their_death_and_none_is_left():
    before = {child.pid for child in psutil.Process().children()}
    report = check_component(PLAIN_WITH_WORKERS, patience=10.0)
    assert outcomes(report)[WORKERS_DIE] == ("passed", "")
    assert {child.pid for child in psutil.Process().children()} == before
    check_component(PLAIN_WITH_WORKERS, only=["seeds_repeat"]).require()
    assert {child.pid for child in psutil.Process().children()} == before


def test_workers_may_be_named():
    report = check_component(PLAIN_WITH_WORKERS, only=[WORKERS_DIE], workers=lambda executor: [])
    assert outcomes(report) == {WORKERS_DIE: ("skipped", NO_WORKERS)}


def test_the_tiny_model_is_the_same_each_time(tmp_path):
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        write_tiny_llama(folder)
    one, two = ([file.read_bytes() for file in sorted(folder.iterdir())] for folder in folders)
    assert one == two
    assert json.loads(one[0])["architectures"] == ["LlamaForCausalLM"]
    assert len(one[1]) < 1 << 18
