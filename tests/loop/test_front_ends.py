"""Front ends: who is let in, who is told what, and what they cost one another (nothing)."""

import pytest

from enginecore.messages import EngineInfo, FinishReason
from enginecore.wire import (
    SCHEMA,
    AbortRequests,
    AddRequest,
    Bye,
    Dead,
    Hello,
    Rejected,
    Shutdown,
    UtilityCall,
    UtilityFailure,
    UtilityReply,
    Welcome,
)
from tests.core.engines import request
from tests.loop.harness import FrontEnd, Loop, reasons, tokens


def check_that_it_is_served(front: FrontEnd, request_id: str = "served") -> None:
    front.say(AddRequest(request(request_id)))
    assert reasons(front.outputs(request_id)[request_id]) == [None, None, None, FinishReason.LENGTH]


# -- hello -----------------------------------------------------------------------------------------------------------


def test_welcome_tells_what_is_in_force() -> None:
    with Loop(max_num_seqs=7) as loop:
        fronts = [loop.stranger(peer) for peer in (b"a", b"b")]
        for index, front in enumerate(fronts):
            front.say(Hello(SCHEMA))
            welcome = front.hear()
            assert isinstance(welcome, Welcome)
            assert welcome.client_index == index
            assert isinstance(welcome.info, EngineInfo)
            assert welcome.info == loop.core.info
            assert welcome.info.max_num_seqs == 7


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([Hello("another")], f"speaks message schema 'another' and the engine core {SCHEMA!r}"),
        ([Hello("")], "speaks message schema ''"),
        ([AddRequest(request("r"))], "did not say hello first"),
        ([UtilityCall(1, "is_alive", [])], "did not say hello first"),
        ([UtilityCall(1, "pause", [])], "did not say hello first"),
        ([AbortRequests(["mine"])], "did not say hello first"),
        ([Bye()], "did not say hello first"),
        ([Shutdown()], "did not say hello first"),
        ([b""], "sent what cannot be read"),
        ([b"\xc1"], "sent what cannot be read"),
        ([b"\x92\x02\x92\xa4mine\xa1p"], "sent what cannot be read"),
        ([b"\x93\x04\x01\x05"], "sent what cannot be read"),
    ],
)
def test_whoever_does_not_say_hello_first_is_refused_alone(messages: list[object], why: str) -> None:
    with Loop() as loop:
        a, stranger = loop.front_end(), loop.stranger()
        loop.gate.close()
        a.say(AddRequest(request("mine")))
        loop.gate.next_step()
        stranger.say(*messages)  # type: ignore[arg-type]
        loop.take_in()
        loop.gate.open()
        assert reasons(a.outputs("mine")["mine"]) == [None, None, None, FinishReason.LENGTH]
        refused = stranger.hear()
        assert isinstance(refused, Rejected)
        assert why in refused.reason
        check_that_it_is_served(a)
        loop.stop()
        assert stranger.rest() == [], "nobody says anything more to a stranger"


def test_hello_twice_ends_the_talk_and_the_requests_of_that_front_end() -> None:
    with Loop() as loop:
        a, b = loop.front_end(b"a"), loop.front_end(b"b")
        loop.gate.close()
        b.say(AddRequest(request("rb", max_tokens=500)))
        loop.gate.next_step()
        a.say(AddRequest(request("ra")))
        b.say(Hello(SCHEMA), AddRequest(request("late")))
        loop.take_in()
        loop.gate.open()
        assert "said hello twice" in b.hear_of(Rejected).reason
        assert "did not say hello first" in b.hear_of(Rejected).reason
        assert len(a.outputs("ra")["ra"]) == 4
        stats = a.stats()
        assert (stats.num_running, stats.num_free_blocks) == (0, stats.num_blocks)


def test_a_peer_that_was_refused_may_say_hello_as_a_new_front_end() -> None:
    with Loop() as loop:
        stranger = loop.stranger()
        stranger.say(b"junk")
        stranger.hear_of(Rejected)
        assert stranger.hello() == 0
        stranger.say(b"junk")
        stranger.hear_of(Rejected)
        assert stranger.hello() == 1
        check_that_it_is_served(stranger)


def test_front_ends_that_come_and_go_leave_nothing_behind() -> None:
    with Loop() as loop:
        a = loop.front_end()
        for index in range(1, 20):
            guest = loop.stranger(b"guest")
            assert guest.hello() == index
            guest.say(AddRequest(request(f"r{index}", max_tokens=400)), None if index % 2 else Bye())
        stats = a.stats()
        assert (stats.num_running, stats.num_waiting, stats.num_free_blocks) == (0, 0, stats.num_blocks)
        assert list(loop.proc._clients) == [b"a"]
        assert list(loop.proc._by_index) == [0]


# -- two at a time ---------------------------------------------------------------------------------------------------


def test_everybody_hears_of_its_own_requests_alone() -> None:
    with Loop() as loop:
        fronts = {name: loop.front_end(name.encode()) for name in "abc"}
        for number in range(8):
            for name, front in fronts.items():
                front.say(AddRequest(request(f"{name}{number}", prompt=3 + number)))
        for name, front in fronts.items():
            heard = front.outputs(*(f"{name}{number}" for number in range(8)))
            assert all(len(tokens(outputs)) == 4 for outputs in heard.values())
            assert all(request_id.startswith(name) for request_id in heard)


def test_refusals_and_replies_go_to_whoever_asked() -> None:
    with Loop() as loop:
        a, b = loop.front_end(b"a"), loop.front_end(b"b")
        a.say(AddRequest(request("bad", prompt=0)), UtilityCall(5, "is_alive", []))
        b.say(AddRequest(request("good")), UtilityCall(5, "nonsense", []))
        assert a.outputs("bad")["bad"][0].error == "request 'bad': the prompt is empty: it must have at least one token"
        assert a.hear_of(UtilityReply).value is True
        assert b.hear_of(UtilityReply).failure is UtilityFailure.INVALID
        assert list(b.outputs("good")) == ["good"]
        loop.stop()
        assert a.rest_of_outputs() == b.rest_of_outputs() == []


def test_a_message_cannot_say_whose_it_is() -> None:
    with Loop() as loop:
        a, b = loop.front_end(b"a"), loop.front_end(b"b")
        forged = request("forged")
        forged.client_index = 0
        b.say(AddRequest(forged))
        assert len(b.outputs("forged")["forged"]) == 4
        loop.stop()
        assert a.rest_of_outputs() == []


def test_an_id_that_is_taken_is_refused_and_the_first_one_goes_on() -> None:
    """Field case 22: from two front ends."""
    with Loop() as loop:
        a, b = loop.front_end(b"a"), loop.front_end(b"b")
        loop.gate.close()
        a.say(AddRequest(request("same")))
        loop.gate.next_step()
        b.say(AddRequest(request("same")))
        loop.take_in()
        loop.gate.open()
        (refused,) = b.outputs("same")["same"]
        assert refused.finish_reason is FinishReason.ERROR
        assert "'same'" in (refused.error or "")
        assert reasons(a.outputs("same")["same"]) == [None, None, None, FinishReason.LENGTH]


@pytest.mark.parametrize("leaving", [Bye(), None], ids=["bye", "gone"])
def test_whoever_leaves_takes_its_requests_along_and_no_others(leaving: Bye | None) -> None:
    with Loop(max_num_seqs=4) as loop:
        a, b = loop.front_end(b"a"), loop.front_end(b"b")
        loop.gate.close()
        a.say(*(AddRequest(request(f"a{number}", max_tokens=40)) for number in range(3)))
        b.say(*(AddRequest(request(f"b{number}", max_tokens=40)) for number in range(3)))
        loop.gate.next_step()
        loop.take_in()
        b.say(leaving)
        loop.take_in()
        loop.gate.open()
        heard = a.outputs("a0", "a1", "a2")
        assert all(len(tokens(outputs)) == 40 for outputs in heard.values())
        stats = a.stats()
        assert (stats.num_running, stats.num_waiting, stats.num_free_blocks) == (0, 0, stats.num_blocks)
        loop.stop()
        assert not any(reasons(b.rest_of_outputs()))
        assert not any(isinstance(message, Dead) for message in b.rest()), "it left before"


def test_too_many_requests_are_refused_at_once_each_to_its_sender() -> None:
    """Field case 18: one runs, one waits, ten are turned away."""
    with Loop(max_num_seqs=1, max_num_waiting=1) as loop:
        fronts = [loop.front_end(b"a"), loop.front_end(b"b")]
        evens, odds = [f"0-{number}" for number in range(2, 12, 2)], [f"1-{number}" for number in range(3, 12, 2)]
        loop.gate.close()
        fronts[0].say(AddRequest(request("0-0")))
        step = loop.gate.next_step()
        for number in range(1, 12):
            fronts[number % 2].say(AddRequest(request(f"{number % 2}-{number}")))
        loop.take_in()
        step.end()
        second = loop.gate.next_step()
        heard = {**fronts[0].outputs(*evens), **fronts[1].outputs(*odds)}
        assert not second.outer.done(), "they were told while the only seat was taken"
        for request_id in (*evens, *odds):
            (output,) = heard[request_id]
            assert output.finish_reason is FinishReason.ERROR
            assert "at most max_num_waiting = 1 may wait; try again later" in (output.error or "")
        loop.gate.open()
        assert reasons(fronts[1].outputs("1-1")["1-1"])[-1] is FinishReason.LENGTH
        check_that_it_is_served(fronts[0])
