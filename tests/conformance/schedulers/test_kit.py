"""The kit's doors: what they say, what they refuse, and what its traces reach."""

import json
import logging
import subprocess
import sys
from importlib.metadata import entry_points
from typing import Any

import pytest
from hypothesis import strategies as st
from typer.testing import CliRunner

from enginecore.cli.app import build_app
from enginecore.contracts import BrokenRule
from enginecore.errors import ConfigurationError, EngineDeadError
from enginecore.kinds import SCHEDULER
from enginecore.plugin import Component
from enginecore.scheduling import ContinuousBatchingScheduler, policy_component
from enginecore_conformance import check_component, parametrize, prepare
from enginecore_conformance.checks import Violation
from enginecore_conformance.exploration import Exploration, Family
from enginecore_conformance.schedulers import CHECKS, SchedulerRun
from enginecore_conformance.schedulers.bench import SchedulerBench
from enginecore_conformance.subject import Options, Subject
from enginecore_conformance.trace import Move, Trace
from enginecore_schedulers.fcfs import Fcfs
from enginecore_schedulers.priority import Priority
from tests.conformance.schedulers.mutants import MUTANTS, PLAIN
from tests.core.engines import make_core
from tests.equivalence.engines import OracleEngine
from tests.scheduling.harnesses import make_request

LATE = "late_tokens_are_kept"


def test_every_check_states_its_rule_and_has_a_name_of_its_own():
    assert len({item.name for item in CHECKS}) == len(CHECKS)
    assert all(item.rule.endswith((".", ")")) for item in CHECKS)


def test_a_component_has_a_check_for_each_of_its_settings():
    names = [str(item) for item in prepare("scheduler:mlfq")]
    assert [name for name in names if name.startswith("setting_")] == [
        "setting_quantum_is_honoured", "setting_levels_is_honoured", "setting_prompt_weight_is_honoured",
        "setting_patience_is_honoured",
    ]  # fmt: skip


def test_what_broke_is_printed_as_a_test_that_shows_it():
    [result] = check_component(MUTANTS[LATE], only=[LATE]).failed
    head, _, code = result.seen.partition("A regression test:\n\n")
    assert "gets nothing" in head
    assert len(code.splitlines()) <= 14, code
    test: dict[str, Any] = {}
    exec(code, test)
    # the printed name is one of a component that is installed or can be imported: this one stands in a dict
    test["SchedulerRun"] = lambda reference, **conditions: SchedulerRun(MUTANTS[LATE], **conditions)
    with pytest.raises(BrokenRule) as caught:
        test[f"test_{LATE}"]()
    assert (caught.value.kind, caught.value.rule) == ("scheduler", LATE)
    test["SchedulerRun"] = lambda reference, **conditions: SchedulerRun(PLAIN, **conditions)
    test[f"test_{LATE}"]()


def test_a_component_that_can_be_imported_is_printed_so_that_it_is_found():
    subject = Subject.find(PLAIN, Options())
    assert subject.reference == "tests.conformance.schedulers.mutants:PLAIN"
    assert Subject.find(subject.reference, Options()).component is PLAIN
    trace = Trace({"depth": 2}, (Move("add", ("r0", [1], 2), {"tenant": "a"}), Move("submit")))
    assert trace.as_test(SchedulerRun, "x", subject.reference, {"settings": {"a": 1}}).splitlines()[3:] == [
        "def test_x():",
        "    run = SchedulerRun(\"tests.conformance.schedulers.mutants:PLAIN\", settings={'a': 1}, depth=2)",
        '    run.add("r0", [1], 2, tenant="a")',
        "    run.submit()",
        "    run.finish()",
    ]


def test_an_object_is_meant_even_if_one_of_its_name_is_installed():
    mine = policy_component("fcfs", Priority)
    subject = Subject.find(mine, Options())
    assert subject.component.name == "fcfs_given"
    assert subject.component.factory is mine.factory
    assert Subject.find("scheduler:fcfs", Options()).component.factory is not mine.factory


def test_opt_outs_are_strict_and_named():
    quick = "prefix_hits_are_used"
    [needed] = check_component(MUTANTS[quick], only=[quick], skip={quick: "no cache"}).results
    assert (needed.outcome, needed.reason) == ("skipped", "no cache")
    [needless] = check_component(PLAIN, only=[quick], skip={quick: "no cache"}).failed
    assert needless.seen == "the rule holds"
    with pytest.raises(ConfigurationError, match="did you mean prefix_hits_are_used"):
        prepare(PLAIN, skip={"prefix_hit_are_used": "no cache"})
    with pytest.raises(ConfigurationError, match="without a reason"):
        prepare(PLAIN, skip={quick: ""})


def test_capabilities_choose_the_checks():
    modest = Component(
        kind="scheduler", name="modest", factory=PLAIN.factory, settings=PLAIN.settings,
        capabilities=frozenset(SCHEDULER.capabilities) - {"prefix_caching", "victim", "batch_queue"},
    )  # fmt: skip
    everything = {str(item) for item in prepare(PLAIN)}
    chosen = {str(item) for item in prepare(modest)}
    assert everything - chosen == {"prefix_hits_are_used", "the_victim_component_decides", "batches_overlap"}


@parametrize(PLAIN, only=["long_prompts_are_split", "batches_overlap"])
def test_as_tests_of_a_package(check):
    check()


# -- what is reached ---------------------------------------------------------------------------------------------


def test_traces_reach_what_the_rules_are_about():
    bench = SchedulerBench(Subject.find("scheduler:fcfs", Options()))
    seen = dict.fromkeys(("preempted", "resumed", "hits", "chunks", "overlap", "aborted", "refused", "late"), 0)
    play = bench.play

    def watched(trace):
        run = play(trace)
        plans, stories = run.harness.plans, run.harness.transcript.stories
        seen["preempted"] += any(plan.preempted_ids for plan in plans)
        seen["resumed"] += any(new.resumed for plan in plans for new in plan.new_requests)
        seen["hits"] += any(new.num_computed_tokens for plan in plans for new in plan.new_requests)
        seen["chunks"] += any(delta.num_computed_tokens for plan in plans for delta in plan.deltas)
        seen["overlap"] += run.harness.max_in_flight > 1
        seen["aborted"] += any(story.aborted for story in stories)
        seen["refused"] += any(story.terminal and story.terminal.error for story in stories)
        seen["late"] += run.harness.scheduler.get_stats().num_preemptions > 0 and run.harness.max_in_flight > 2

    exploration = bench._exploration
    exploration._play = watched
    assert dict(exploration.findings) == {}
    assert all(seen.values()), seen


def test_an_earlier_check_that_hangs_is_shown():
    trace = Trace({}, (Move("submit"),))
    seen: list[Trace] = []

    def play(trace):
        with pytest.raises(Violation, match=r"has not returned from this trace:\nTrace"):
            exploration.findings  # noqa: B018
        seen.append(trace)

    exploration = Exploration(play, [Family(st.just(trace), 1)])
    assert dict(exploration.findings) == {}
    assert seen == [trace]


# -- heavy plugins -----------------------------------------------------------------------------------------------


def test_a_heavy_import_is_noticed(tmp_path, monkeypatch):
    (tmp_path / "pandas.py").write_text("")
    (tmp_path / "heavy_policy.py").write_text(
        "import pandas\n"
        "from enginecore.scheduling import policy_component\n"
        "from enginecore_schedulers.fcfs import Fcfs\n"
        'COMPONENT = policy_component("heavy", Fcfs)\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    [result] = check_component("heavy_policy:COMPONENT", only=["importing_it_is_light"]).failed
    assert result.seen == "importing heavy_policy imports pandas"
    for name, module in list(sys.modules.items()):  # not by monkeypatch, which would put the empty pandas back
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


# -- command line ------------------------------------------------------------------------------------------------


def cli(*arguments):
    return CliRunner().invoke(build_app(["check"]), ["check", *arguments])


def test_the_command_says_what_passed_and_what_failed():
    passed = cli("scheduler:fcfs", "--only", "long_prompts_are_split")
    assert (passed.exit_code, "1 of 1 checks passed" in passed.output) == (0, True)
    name = "tests.conformance.schedulers.mutants:SUPERSTITIOUS"
    failed = cli(name, "--only", "processes_plan_alike")
    assert failed.exit_code == 1
    assert "PYTHONHASHSEED" in failed.output
    skipped = cli(name, "--only", "processes_plan_alike", "--skip", "processes_plan_alike=by luck", "--json")
    [result] = json.loads(skipped.output)
    assert (skipped.exit_code, result["outcome"], result["reason"]) == (0, "skipped", "by luck")


def test_a_failure_that_comes_again_and_again_is_logged_once():
    name = "tests.conformance.schedulers.mutants:MISSPELT"
    failed = cli(name, "--only", "plain_requests_are_served")
    assert failed.exit_code == 1
    assert failed.output.count("Traceback") == 1
    assert failed.output.count("has no attribute 'nwo'") == 2  # in the log, and in the report
    assert logging.getLogger("enginecore").propagate


def test_the_command_passes_settings_on_and_lists_rules():
    starving = cli("scheduler:priority", "--set", "scheduler.priority.ageing=0", "--only", "wait_is_bounded")
    assert (starving.exit_code, "waiting has a bound" in starving.output) == (1, True)
    rules = json.loads(cli("scheduler:fcfs", "--list", "--json").output)
    assert {item["check"] for item in rules} >= {"budget_is_kept", "setting_prefill_chunk_size_is_honoured"}
    assert isinstance(cli("scheduler:fcfs", "--skip", "budget_is_kept").exception, ConfigurationError)


def test_pytest_runs_the_checks_of_a_component():
    installed = {each.value for each in entry_points(group="pytest11")}
    plugin = "enginecore_conformance.pytest_plugin"
    command = [
        sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider",
        *([] if plugin in installed else ["-p", plugin]),
        "--pyargs", "enginecore_conformance", "--component", "scheduler:priority",
        "--component-set", "scheduler.priority.ageing=0", "--component-skip", "wait_is_bounded=it starves on purpose",
        "-k", "wait_is_bounded or long_prompts",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert "1 xfailed" in done.stdout
    assert "it starves on purpose" in done.stdout


# -- at run time -------------------------------------------------------------------------------------------------


def broken(context):
    class Broken(ContinuousBatchingScheduler):
        def schedule(self):
            plan = super().schedule()
            for delta in plan.deltas:
                delta.num_computed_tokens -= 1
            return plan

    return Broken(Fcfs(), context)


BROKEN = Component(
    kind="scheduler", name="broken", factory=lambda settings, context: broken(context),
    capabilities=frozenset(SCHEDULER.capabilities),
)  # fmt: skip


def test_an_engine_can_be_told_to_check_its_components():
    engine = OracleEngine(
        components=[BROKEN], scheduler={"use": "broken"}, oracle={"verify": False}, debug={"check_components": True}
    )
    engine.add(make_request("r", 5, 40))
    with pytest.raises(EngineDeadError) as caught:
        engine.run()
    assert isinstance(caught.value.__cause__, BrokenRule)
    assert caught.value.__cause__.rule == "spans_are_contiguous"
    assert "'r'" in str(caught.value.__cause__)


@pytest.mark.parametrize("depth", [1, 2])
def test_sound_components_run_as_ever_under_watch(depth):
    engine = OracleEngine(
        scheduler={"use": "priority"}, num_kv_blocks=16, block_size=4, max_num_seqs=4, max_num_batched_tokens=16,
        max_model_len=64, oracle={"depth": depth, "feeds_tokens": True}, debug={"check_components": True},
    )  # fmt: skip
    engine.add(*(make_request(f"r{number}", 9 + number, 20, priority=number % 2) for number in range(12)))
    engine.run()
    assert engine.stats.num_preemptions > 0


def test_components_are_left_alone_unless_that_is_asked_for():
    assert type(make_core().scheduler) is ContinuousBatchingScheduler
