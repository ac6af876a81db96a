"""Control calls and messages that cannot be read or written: whoever is meant is told, and nobody else."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from enginecore.errors import EngineDeadError, InvalidRequestError, ModelError, UtilityError
from enginecore.messages import EngineCoreOutput, FinishReason, PositionLogprobs
from enginecore.wire import AddRequest, Rejected, UtilityCall, UtilityFailure, UtilityReply
from tests.core.engines import request
from tests.loop.harness import GIVEN, TIMEOUT, Loop, reasons, tokens
from tests.loop.scripted_core import ScriptedCore


@pytest.fixture
def give() -> Iterator[Callable[[Callable[[], Any]], str]]:
    """Makes `collective_rpc("give", name)` give something."""

    def add(gift: Callable[[], Any]) -> str:
        GIVEN["it"] = gift
        return "it"

    yield add
    GIVEN.clear()


# -- calls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args", "value"),
    [
        ("is_alive", [], True),
        ("check_health", [], None),
        ("reset_prefix_cache", [], True),
        ("reset_prefix_cache", [True], True),
        ("collective_rpc", ["get_request_ids"], [[]]),
    ],
)
def test_a_call_returns_its_value(name: str, args: list[Any], value: Any) -> None:
    with Loop() as loop:
        assert loop.front_end().call(name, *args) == UtilityReply(1, value)


@pytest.mark.parametrize(
    ("name", "args", "error"),
    [
        ("no_such", [], "no utility 'no_such'; there are"),
        ("", [], "no utility ''"),
        ("__class__", [], "no utility '__class__'"),
        ("add_request", [], "no utility 'add_request'"),
        ("is_alive", [1], "too many positional arguments"),
        ("collective_rpc", [], "missing a required argument: 'method'"),
        ("collective_rpc", [5], "argument 'method' is 5: Expected `str`"),
        ("reset_prefix_cache", ["yes"], "argument 'reset_running_requests' is 'yes': Expected `bool`"),
    ],
)
def test_a_wrong_call_is_an_error_for_its_caller_alone(name: str, args: list[Any], error: str) -> None:
    with Loop() as loop:
        a, b = loop.front_end(b"a"), loop.front_end(b"b")
        loop.gate.close()
        b.say(AddRequest(request("r")))
        loop.gate.next_step()
        a.say(UtilityCall(9, name, args))
        loop.gate.open()
        reply = a.hear_of(UtilityReply)
        assert (reply.call_id, reply.failure, reply.value) == (9, UtilityFailure.INVALID, None)
        assert error in reply.error
        assert len(b.outputs("r")["r"]) == 4


@pytest.mark.parametrize(
    ("error", "failure", "text"),
    [
        (ZeroDivisionError("one by none"), UtilityFailure.FAILED, "ZeroDivisionError: one by none"),
        (UtilityError("cannot", traceback="Traceback: there"), UtilityFailure.FAILED, "cannot"),
        (ModelError("no such adapter"), UtilityFailure.FAILED, "ModelError: no such adapter"),
        (InvalidRequestError("no such rank"), UtilityFailure.INVALID, "no such rank"),
        (OSError(2, "No such file", "/tmp/\udcff"), UtilityFailure.FAILED, r"/tmp/\udcff"),
        (RecursionError("too deep"), UtilityFailure.FAILED, "too deep"),
        (ValueError("x" * 50_000), UtilityFailure.FAILED, "xxxx"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_call_that_fails_tells_its_caller_how(
    error: Exception, failure: UtilityFailure, text: str, give: Callable[[Callable[[], Any]], str]
) -> None:
    def fail() -> None:
        raise error

    with Loop() as loop:
        a = loop.front_end()
        reply = a.call("collective_rpc", "give", give(fail))
        assert (reply.failure, reply.value) == (failure, None)
        assert text in reply.error
        if failure is UtilityFailure.FAILED:
            assert "Traceback" in reply.traceback or len(reply.traceback) == 20_000
        assert len(reply.error) < 3000
        assert a.call("is_alive").value is True


def test_errors_of_a_utility_that_are_none_of_its_own_fail_the_call_alone() -> None:
    def fail() -> None:
        raise LookupError("in the plugin")

    def dead() -> None:
        raise EngineDeadError("it is dead")

    with Loop(ScriptedCore(utilities={"fail": fail, "dead": dead, "live": lambda: 5})) as loop:
        a = loop.front_end()
        reply = a.call("fail")
        assert (reply.failure, reply.error) == (
            UtilityFailure.FAILED,
            "utility 'fail' failed: LookupError: in the plugin",
        )
        assert "in fail" in reply.traceback
        assert a.call("dead").failure is UtilityFailure.DEAD
        assert a.call("live").value == 5


def test_arguments_that_are_nested_too_deep_cost_their_caller_alone() -> None:
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    with Loop() as loop:
        a = loop.front_end()
        for name in ("collective_rpc", "is_alive", "reset_prefix_cache"):
            assert a.call(name, deep).failure is not None
        assert a.call("is_alive").value is True


def test_values_arrive_as_plain_data(give: Callable[[Callable[[], Any]], str]) -> None:
    with Loop() as loop:
        reply = loop.front_end().call("collective_rpc", "give", give(lambda: {"a": [0, 1], "b": np.float32(0.5)}))
        assert reply.value == [{"a": [0, 1], "b": 0.5}]


@pytest.mark.parametrize(
    "gift",
    [lambda: lambda: 0, lambda: np.arange(5), lambda: {"x": {1: object()}}, lambda: 1 << 70, lambda: "\ud800"],
    ids=["lambda", "array", "object", "large number", "no text"],
)
def test_a_result_that_cannot_be_sent_is_an_error_for_its_caller_alone(
    gift: Callable[[], Any], give: Callable[[Callable[[], Any]], str]
) -> None:
    with Loop() as loop:
        a, b = loop.front_end(b"a"), loop.front_end(b"b")
        b.say(AddRequest(request("r")))
        reply = a.call("collective_rpc", "give", give(gift))
        assert reply.failure is UtilityFailure.FAILED
        assert reply.error.startswith("its result cannot be sent to another process: ")
        assert len(b.outputs("r")["r"]) == 4
        assert a.call("is_alive").value is True


def test_a_result_that_is_too_large_for_the_transport_is_an_error_for_its_caller_alone() -> None:
    with Loop(ScriptedCore(utilities={"large": lambda: "x" * 10_000, "small": lambda: "x"})) as loop:
        limit_size(loop, 5000)
        a = loop.front_end()
        reply = a.call("large")
        assert (reply.failure, reply.error) == (UtilityFailure.FAILED, "its result is too large")
        assert a.call("small").value == "x"


def test_calls_during_a_step_are_answered_after_it_in_order() -> None:
    with Loop() as loop:
        a = loop.front_end()
        loop.gate.close()
        a.say(AddRequest(request("r", max_tokens=2)))
        step = loop.gate.next_step()
        a.say(*(UtilityCall(number, "is_alive", []) for number in (3, 1, 2)))
        loop.take_in()
        assert a.rest() == []
        step.end()
        loop.gate.next_step()
        assert [a.hear_of(UtilityReply).call_id for _ in range(3)] == [3, 1, 2]


# -- what cannot be read ---------------------------------------------------------------------------------------------


def test_a_request_that_cannot_be_read_ends_with_an_error_and_its_front_end_goes_on() -> None:
    with Loop() as loop:
        a, b = loop.front_end(b"a"), loop.front_end(b"b")
        a.say(AddRequest(request("before")), b"\x92\x02\x92\xa1u\xa1p", AddRequest(request("after")))
        b.say(AddRequest(request("others")))
        heard = a.outputs("before", "u", "after")
        (error,) = heard["u"]
        assert error.finish_reason is FinishReason.ERROR
        assert (error.error or "").startswith("the request is not valid: Expected `array`")
        assert len(heard["before"]) == len(heard["after"]) == len(b.outputs("others")["others"]) == 4


def test_a_call_that_cannot_be_read_is_answered_and_its_front_end_goes_on() -> None:
    with Loop() as loop:
        a = loop.front_end()
        a.say(b"\x93\x04\x2a\x05")
        reply = a.hear_of(UtilityReply)
        assert (reply.call_id, reply.failure) == (42, UtilityFailure.INVALID)
        assert reply.error
        assert a.call("is_alive").value is True


@pytest.mark.parametrize("junk", [b"", b"junk", b"\x91\x63", b"\x92\x03\x05", b"\x80", b"\x93\x04\xa1x\x05"])
def test_whoever_sends_junk_is_refused_with_all_its_requests_and_the_others_go_on(junk: bytes) -> None:
    with Loop() as loop:
        a, b = loop.front_end(b"a"), loop.front_end(b"b")
        loop.gate.close()
        a.say(AddRequest(request("ra", max_tokens=500)))
        loop.gate.next_step()
        b.say(AddRequest(request("rb")))
        a.say(junk, AddRequest(request("late")))
        loop.take_in()
        loop.gate.open()
        assert "sent what cannot be read" in a.hear_of(Rejected).reason
        assert len(b.outputs("rb")["rb"]) == 4
        stats = b.stats()
        assert (stats.num_running, stats.num_free_blocks) == (0, stats.num_blocks)


# -- outputs that cannot be sent -------------------------------------------------------------------------------------


def limit_size(loop: Loop, most: int) -> None:
    def on_send(peer: bytes, frames: Any) -> None:
        if sum(map(len, frames)) > most:
            raise InvalidRequestError("is too large")

    loop.server.on_send = on_send


def check(condition: bool) -> None:
    assert condition


def output(request_id: str, *new: Any, last: bool = False) -> EngineCoreOutput:
    return EngineCoreOutput(request_id, list(new), FinishReason.LENGTH if last else None)


def test_an_output_that_cannot_be_sent_ends_its_request_and_no_other() -> None:
    bad = object()
    core = ScriptedCore(
        outputs=[
            [output("x", 1), output("y", 1)],
            [output("x", 2), output("y", bad), output("z", 2)],
            [output("y", 3), output("x", 3)],
            [output("y", bad), output("x", 4, last=True)],
            [output("y", 5, last=True)],
        ]
    )
    with Loop(core) as loop:
        a = loop.front_end()
        # all steps are over before one is sent
        loop.server.on_send = lambda peer, frames: check(core.done.wait(TIMEOUT))
        a.say(AddRequest(request("any")))
        heard = [output for outputs in a.outputs("x").values() for output in outputs]
        a.call("nothing")  # by now the loop has heard of it
        loop.stop()
        heard += a.rest_of_outputs()
    mine = {name: [output for output in heard if output.request_id == name] for name in "xyz"}
    assert tokens(mine["x"]) == [1, 2, 3, 4]
    assert tokens(mine["z"]) == [2]
    assert tokens(mine["y"]) == [1]
    assert reasons(mine["y"]) == [None, FinishReason.ERROR], "one end, and nothing after it"
    assert mine["y"][-1].error == (
        "its output cannot be sent to another process: Encoding objects of type object is unsupported"
    )
    assert loop.sending._ended == set()


def test_an_id_whose_output_could_not_be_sent_may_be_used_again() -> None:
    core = ScriptedCore(outputs=[[output("y", object())]])
    with Loop(core) as loop:
        a = loop.front_end()
        a.say(AddRequest(request("y")))
        assert reasons(a.outputs("y")["y"]) == [FinishReason.ERROR]
        a.call("nothing")  # by now the loop has heard of it
        core.more([[output("y", 7, last=True)]])
        a.say(AddRequest(request("y")))
        assert tokens(a.outputs("y")["y"]) == [7]


def test_an_output_that_is_too_large_for_the_transport_ends_its_request_and_no_other() -> None:
    many = [PositionLogprobs(token_ids=[1] * 500, logprobs=[0.0] * 500, sampled_rank=1)]
    large = EngineCoreOutput("large", [1], logprobs=many)
    core = ScriptedCore(outputs=[[output("x", 1), large, output("y", 1)], [output("x", 2, last=True)]])
    with Loop(core) as loop:
        limit_size(loop, 2000)
        a = loop.front_end()
        a.say(AddRequest(request("any")))
        heard = a.outputs("large", "x")
    assert tokens(heard["x"]) == [1, 2]
    assert tokens(heard["y"]) == [1]
    assert [output.error for output in heard["large"]] == ["its output is too large"]


def test_a_step_that_is_too_large_as_a_whole_is_sent_in_pieces() -> None:
    core = ScriptedCore(outputs=[[output(f"r{number}", *range(100), last=True) for number in range(50)]])
    with Loop(core) as loop:
        limit_size(loop, 1000)
        a = loop.front_end()
        a.say(AddRequest(request("any")))
        heard = a.outputs(*(f"r{number}" for number in range(50)))
    assert all(tokens(outputs) == list(range(100)) for outputs in heard.values())
    assert core.aborted == []


def test_the_error_of_a_request_may_hold_what_is_no_text() -> None:
    error = EngineCoreOutput("y", [], FinishReason.ERROR, error="no file \udcff")
    with Loop(ScriptedCore(outputs=[[output("x", 1, last=True), error]])) as loop:
        a = loop.front_end()
        a.say(AddRequest(request("any")))
        heard = a.outputs("x", "y")
    assert heard["y"][0].finish_reason is FinishReason.ERROR
    assert "surrogates not allowed" in (heard["y"][0].error or "")
    assert tokens(heard["x"]) == [1]
