"""Pause and resume: nothing new is scheduled, nothing is lost, and a paused engine has nothing to do."""

from typing import Any

import pytest

from enginecore.core import EngineCore
from enginecore.errors import EngineDeadError
from enginecore.messages import EngineCoreOutput, FinishReason
from enginecore.scheduling import RequestView, SchedulerView, SchedulingPolicy, policy_component
from enginecore_conformance.oracle.model import OracleModel
from tests.core.engines import make_core, request, run
from tests.core.stalling import Stalling

ORACLES: list[dict[str, Any]] = [
    {},
    {"two_phase": True},
    {"depth": 2},
    {"depth": 2, "feeds_tokens": True},
    {"depth": 4, "feeds_tokens": True},
]


def paused_core(**settings: Any) -> EngineCore:
    core = make_core(**settings)
    core.call_utility("pause")
    run(core)
    return core


def scheduled_ids(core: EngineCore) -> set[str]:
    """Requests that the executor ever computed a token for."""
    (history,) = core.call_utility("collective_rpc", "get_history")
    return {request_id for trace in history for request_id in trace.plan.num_scheduled_tokens}


def tokens_of(outputs: list[EngineCoreOutput], request_id: str) -> list[int]:
    return [token for output in outputs if output.request_id == request_id for token in output.new_token_ids]


# -- 25: abort or add while paused -----------------------------------------------------------------------------------


@pytest.mark.parametrize("oracle", ORACLES)
def test_25_of_two_added_while_paused_the_aborted_one_never_runs(oracle: dict[str, Any]) -> None:
    core = paused_core(oracle={**oracle, "record": True})
    core.add_request(request("a"))
    core.add_request(request("b"))
    core.abort_requests(["a"])
    core.call_utility("resume")
    outputs = run(core)
    assert [output.finish_reason for output in outputs] == [None, None, None, FinishReason.LENGTH]
    assert {output.request_id for output in outputs} == {"b"}
    assert scheduled_ids(core) == {"b"}


def test_25_what_is_added_while_paused_waits_and_costs_no_rounds() -> None:
    core = paused_core()
    core.add_request(request("r"))
    assert run(core) == []
    assert core.is_paused
    assert core.has_unfinished_requests()
    assert not core.has_requests()
    assert core.advance() == ({}, False)
    assert core.call_utility("get_stats").num_waiting == 1
    core.call_utility("resume")
    assert not core.is_paused
    assert len(run(core)) == 4
    assert not core.has_unfinished_requests()


@pytest.mark.parametrize("oracle", ORACLES)
@pytest.mark.parametrize("point", range(7))
def test_25_steps_in_flight_are_settled_and_the_tokens_are_those_of_an_engine_that_never_stopped(
    oracle: dict[str, Any], point: int
) -> None:
    core = make_core(oracle=oracle, max_num_batched_tokens=4)
    wanted = {name: request(name, prompt=6 + n, max_tokens=6) for n, name in enumerate(("a", "b", "gone"))}
    for wire in wanted.values():
        core.add_request(wire)
    outputs = []
    for _ in range(point):
        outputs += [output for due in core.advance()[0].values() for output in due.outputs]
    core.call_utility("pause")
    step = core.call_utility("get_stats").step
    for _ in range(oracle.get("depth", 1) + 1):
        outputs += [output for due in core.advance()[0].values() for output in due.outputs]
    assert not core.has_requests()
    assert core.call_utility("get_stats").step == step
    assert core.has_unfinished_requests()
    core.abort_requests(["gone"])
    assert core.has_requests()
    assert run(core) == []
    core.call_utility("pause")  # once more changes nothing
    core.call_utility("resume")
    outputs += run(core)
    model = OracleModel.of_engine(core.info)
    for name in ("a", "b"):
        assert tokens_of(outputs, name) == list(model.expected_output_of(wanted[name]).token_ids)
    assert [output.finish_reason for output in outputs if output.finish_reason is not None] == [FinishReason.LENGTH] * 2
    stats = core.call_utility("get_stats")
    assert stats.num_free_blocks == stats.num_blocks


def test_25_an_id_may_be_used_again_right_after_its_abort_while_paused() -> None:
    core = paused_core()
    core.add_request(request("r", max_tokens=50))
    core.abort_requests(["r"])
    core.add_request(request("r", max_tokens=2))
    core.call_utility("resume")
    assert len(run(core)) == 2


@pytest.mark.parametrize("oracle", ORACLES)
def test_finish_all_ends_what_is_paused(oracle: dict[str, Any]) -> None:
    core = make_core(oracle=oracle)
    core.add_request(request("running"))
    core.advance()
    core.call_utility("pause")
    core.add_request(request("queued"))
    (due,) = core.finish_all(FinishReason.ABORT).values()
    assert {output.request_id: output.finish_reason for output in due.outputs if output.finish_reason is not None} == {
        "running": FinishReason.ABORT,
        "queued": FinishReason.ABORT,
    }
    assert run(core) == []
    assert not core.has_unfinished_requests()
    core.call_utility("resume")
    assert run(core) == []
    assert core.call_utility("collective_rpc", "get_request_ids") == [[]]


class Refusing(SchedulingPolicy):
    """Refuses everybody."""

    def rank(self, request: RequestView, scheduler: SchedulerView) -> float:
        return request.arrival

    def admit(self, request: RequestView, scheduler: SchedulerView) -> str:
        return "not today"


def test_what_the_scheduler_refuses_is_told_while_paused() -> None:
    core = paused_core(components=[policy_component("refusing", Refusing)], scheduler={"use": "refusing"})
    core.add_request(request("r"))
    assert core.has_requests()
    (output,) = run(core)
    assert (output.request_id, output.finish_reason) == ("r", FinishReason.ERROR)
    assert "not today" in str(output.error)
    assert not core.has_requests()


def test_no_progress_is_no_fault_while_paused_and_one_afterwards() -> None:
    core = paused_core(components=[policy_component("stalling", Stalling)], scheduler={"use": "stalling"})
    core.add_request(request("r"))
    assert core.advance() == ({}, False)
    core.call_utility("resume")
    with pytest.raises(EngineDeadError, match="no progress"):
        core.advance()


# -- 45: cache reset while requests run, and while they are held up ----------------------------------------------------


@pytest.mark.parametrize("oracle", [*ORACLES, {"depth": 2, "in_order": False}])
@pytest.mark.parametrize("point", range(7))
def test_45_a_reset_while_paused_preempts_everything_and_the_output_is_equal(
    oracle: dict[str, Any], point: int
) -> None:
    core = make_core(oracle=oracle, block_size=4, max_num_batched_tokens=8, debug={"check_invariants": True})
    wanted = [request("a", prompt=11, max_tokens=9), request("b", prompt=7, max_tokens=9)]
    for wire in wanted:
        core.add_request(wire)
    outputs = []
    for _ in range(point):
        outputs += [output for due in core.advance()[0].values() for output in due.outputs]
    core.call_utility("pause")
    running = core.call_utility("get_stats").num_running
    assert core.call_utility("reset_prefix_cache") is (running == 0)
    in_flight = core.has_requests() and core.info.max_concurrent_batches > 1 and point > 0
    at_once = core.call_utility("reset_prefix_cache", True)
    assert at_once is True or (in_flight and oracle.get("in_order") is False)
    outputs += run(core)
    assert core.call_utility("reset_prefix_cache", True) is True
    stats = core.call_utility("get_stats")
    assert (stats.num_running, stats.num_cached_blocks, stats.num_preemptions) == (0, 0, running)
    assert stats.num_free_blocks == stats.num_blocks
    core.call_utility("resume")
    outputs += run(core)
    model = OracleModel.of_engine(core.info)
    for wire in wanted:
        assert tokens_of(outputs, wire.request_id) == list(model.expected_output_of(wire).token_ids)
