"""Aborts, whatever the request that they mean is doing."""

from enginecore.messages import FinishReason
from enginecore.wire import AbortRequests, AddRequest, UtilityCall, UtilityReply
from tests.core.engines import request
from tests.loop.harness import Loop, reasons, tokens


def test_abort_of_a_request_that_is_still_in_the_inbox() -> None:
    with Loop() as loop:
        a = loop.front_end()
        loop.gate.close()
        a.say(AddRequest(request("first")))
        loop.gate.next_step()
        a.say(AddRequest(request("queued")), AbortRequests(["queued"]))
        loop.take_in()
        loop.gate.open()
        assert list(a.outputs("first")) == ["first"]
        assert a.stats().num_waiting == 0
        loop.stop()
        assert a.rest_of_outputs() == []


def test_an_id_may_be_used_again_once_it_was_aborted() -> None:
    with Loop() as loop:
        a = loop.front_end()
        a.say(AddRequest(request("again", prompt=9, max_tokens=3)))
        expected = tokens(a.outputs("again")["again"])
        loop.gate.close()
        a.say(AddRequest(request("r", prompt=5, max_tokens=100)))
        loop.gate.next_step()
        a.say(AbortRequests(["r"]), AddRequest(request("r", prompt=9, max_tokens=3)))
        loop.take_in()
        loop.gate.open()
        outputs = a.outputs("r")["r"]
        assert tokens(outputs) == expected, "of the second one alone"
        assert reasons(outputs) == [None, None, FinishReason.LENGTH]


def test_add_abort_and_add_again_while_a_step_runs() -> None:
    with Loop() as loop:
        a = loop.front_end()
        loop.gate.close()
        a.say(AddRequest(request("other")))
        loop.gate.next_step()
        a.say(AddRequest(request("r", max_tokens=50)), AbortRequests(["r"]), AddRequest(request("r", max_tokens=2)))
        loop.take_in()
        loop.gate.open()
        assert reasons(a.outputs("r", "other")["r"]) == [None, FinishReason.LENGTH]


def test_aborts_of_unknown_ids_and_of_ids_that_have_ended_are_left_alone() -> None:
    with Loop() as loop:
        a = loop.front_end()
        a.say(
            AbortRequests([]),
            AbortRequests(["nobody", "nobody", ""]),
            AddRequest(request("r")),
            AbortRequests(["nobody"]),
        )
        a.outputs("r")
        a.say(AbortRequests(["r"]), AbortRequests(["r", "r"]))
        assert a.call("is_alive").value is True
        loop.stop()
        assert a.rest_of_outputs() == []


def test_abort_twice_is_abort_once() -> None:
    with Loop() as loop:
        a = loop.front_end()
        loop.gate.close()
        a.say(AddRequest(request("gone")), AddRequest(request("stays")))
        loop.gate.next_step()
        a.say(AbortRequests(["gone", "gone"]), AbortRequests(["gone"]))
        loop.take_in()
        loop.gate.open()
        assert list(a.outputs("stays")) == ["stays"]
        stats = a.stats()
        assert stats.num_free_blocks == stats.num_blocks


def test_an_abort_of_all_that_runs_leaves_nothing_to_do() -> None:
    with Loop() as loop:
        a = loop.front_end()
        loop.gate.close()
        a.say(*(AddRequest(request(f"r{n}", max_tokens=500)) for n in range(5)))
        loop.gate.next_step()
        a.say(AbortRequests([f"r{n}" for n in range(5)]))
        loop.take_in()
        loop.gate.open()
        stats = a.stats()
        assert (stats.num_running, stats.num_free_blocks) == (0, stats.num_blocks)


def test_a_stranger_aborts_nothing() -> None:
    with Loop() as loop:
        a, stranger = loop.front_end(), loop.stranger()
        loop.gate.close()
        a.say(AddRequest(request("r")))
        loop.gate.next_step()
        stranger.say(AbortRequests(["r"]))
        loop.take_in()
        loop.gate.open()
        assert reasons(a.outputs("r")["r"]) == [None, None, None, FinishReason.LENGTH]


def test_an_abort_while_the_engine_is_paused_frees_the_blocks() -> None:
    with Loop() as loop:
        a = loop.front_end()
        loop.gate.close()
        a.say(AddRequest(request("r", max_tokens=500)))
        loop.gate.next_step()
        a.say(UtilityCall(1, "pause", []))
        loop.gate.open()
        assert a.hear_of(UtilityReply).failure is None
        a.say(AbortRequests(["r"]))
        stats = a.stats()
        assert (stats.num_running, stats.num_waiting, stats.num_free_blocks) == (0, 0, stats.num_blocks)
