"""Control calls: whoever calls wrongly is told how to call, and a call that fails costs nobody else anything."""

from typing import Any

import pytest

from enginecore.core import EngineCore, utility_result_type
from enginecore.errors import EngineDeadError, InvalidRequestError, UtilityError
from enginecore.messages import SchedulerStats
from enginecore.plugin import Component
from enginecore.scheduling import RequestView, SchedulerView, SchedulingPolicy, policy_component
from enginecore_conformance.oracle.executor import OracleExecutor
from enginecore_conformance.oracle.settings import OracleSettings
from tests.core.engines import make_core, request, run


class Talkative(OracleExecutor):
    """Its workers' methods fail in every way, and repeat what they are told."""

    def collective_rpc(self, method: str, *args: Any, timeout: float | None = None) -> list[Any]:
        match method:
            case "fail":
                raise ZeroDivisionError("the worker divided")
            case "exit":
                raise SystemExit(3)
            case "start_profile" | "stop_profile":
                return [f"{method} {args}"]
            case _:
                return list(args)


def talkative_core() -> EngineCore:
    component = Component(kind="executor", name="talkative", factory=Talkative, settings=OracleSettings)
    return make_core(components=[component], executor={"use": "talkative"})


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (
            "reset_prefix_cache",
            ("yes",),
            r"utility reset_prefix_cache\(reset_running_requests: bool = False\): argument "
            r"'reset_running_requests' is 'yes': Expected `bool`, got `str`",
        ),
        ("reset_prefix_cache", (1,), "Expected `bool`, got `int`"),
        ("reset_prefix_cache", (None,), "Expected `bool`, got `null`"),
        ("collective_rpc", (["get_stats"],), "argument 'method' is .*Expected `str`, got `array`"),
        ("start_profile", (b"/tmp",), r"utility start_profile\(folder: str\): argument 'folder' is b'/tmp'"),
        ("start_profile", (), "missing a required argument: 'folder'"),
        ("stop_profile", ("/tmp",), "too many positional arguments"),
        ("is_paused", (), "no utility 'is_paused'"),
        ("_profile", ("start_profile",), "no utility '_profile'"),
    ],
)
def test_a_wrong_call_names_utility_signature_and_argument(name: str, arguments: tuple[Any, ...], message: str) -> None:
    core = make_core()
    with pytest.raises(InvalidRequestError, match=message):
        core.call_utility(name, *arguments)
    assert core.call_utility("is_alive") is True


def test_a_long_argument_is_not_repeated_whole() -> None:
    with pytest.raises(InvalidRequestError) as raised:
        make_core().call_utility("reset_prefix_cache", "x" * 1_000_000)
    assert len(str(raised.value)) < 300


def test_arguments_without_a_declared_type_arrive_as_they_are() -> None:
    values = [1, "two", {"three": [4.0, None]}, b"five"]
    assert talkative_core().call_utility("collective_rpc", "echo", *values) == values


def test_a_utility_that_fails_is_its_callers_affair_and_says_where() -> None:
    core = talkative_core()
    core.add_request(request("r"))
    core.advance()
    with pytest.raises(UtilityError) as raised:
        core.call_utility("collective_rpc", "fail")
    assert str(raised.value) == "utility 'collective_rpc' failed: ZeroDivisionError: the worker divided"
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert "in collective_rpc" in raised.value.traceback
    assert raised.value.traceback.endswith("ZeroDivisionError: the worker divided\n")
    assert len(run(core)) == 3


def test_an_unknown_method_of_the_workers_is_a_failure_of_the_call() -> None:
    """Field case 138."""
    with pytest.raises(UtilityError, match="AttributeError: the oracle's worker has no method 'nothing'; it has get_"):
        make_core().call_utility("collective_rpc", "nothing")


def test_what_is_no_exception_goes_on() -> None:
    core = talkative_core()
    with pytest.raises(SystemExit):
        core.call_utility("collective_rpc", "exit")
    assert core.call_utility("is_alive") is True


def test_health_of_a_dead_executor_is_told_as_death() -> None:
    core = make_core()
    assert core.call_utility("check_health") is None
    core.executor.shutdown()
    with pytest.raises(EngineDeadError, match="is shut down"):
        core.call_utility("check_health")


class BadLoser(SchedulingPolicy):
    """Fails when a request is preempted: it is then neither running nor waiting."""

    def rank(self, request: RequestView, scheduler: SchedulerView) -> float:
        return request.arrival

    def preempted(self, request: RequestView, scheduler: SchedulerView) -> None:
        raise KeyError("lost")


def test_a_reset_that_fails_half_way_is_the_end_since_nobody_knows_where_the_requests_are() -> None:
    core = make_core(components=[policy_component("bad-loser", BadLoser)], scheduler={"use": "bad-loser"})
    core.add_request(request("r"))
    core.advance()
    with pytest.raises(EngineDeadError, match="has failed in reset_prefix_cache: KeyError: 'lost'"):
        core.call_utility("reset_prefix_cache", True)
    with pytest.raises(EngineDeadError, match="is dead"):
        core.advance()


# -- profiles --------------------------------------------------------------------------------------------------------


def test_profiles_are_the_executors_affair() -> None:
    core = talkative_core()
    assert core.call_utility("start_profile", "/somewhere") is None
    assert core.call_utility("stop_profile") == ["stop_profile ()"]


@pytest.mark.parametrize(("name", "arguments"), [("start_profile", ("/somewhere",)), ("stop_profile", ())])
def test_an_executor_that_cannot_be_profiled_is_named(name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(UtilityError, match=f"executor 'oracle' cannot be profiled: .*no method '{name}'"):
        make_core().call_utility(name, *arguments)


# -- what they return ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("get_stats", SchedulerStats),
        ("is_alive", bool),
        ("reset_prefix_cache", bool),
        ("collective_rpc", list[Any]),
        ("stop_profile", list[str]),
        ("pause", type(None)),
    ],
)
def test_the_type_that_a_utility_returns_can_be_asked_for(name: str, result: Any) -> None:
    assert utility_result_type(name) == result


def test_there_is_no_type_for_what_is_no_utility() -> None:
    with pytest.raises(InvalidRequestError, match="no utility 'get_statz'; there are check_health, "):
        utility_result_type("get_statz")
