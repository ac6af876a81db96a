"""What happens while a forward pass runs: by the order of events, the test ends the pass."""

import threading

from enginecore.loop.queues import ToPeer
from enginecore.messages import FinishReason
from enginecore.wire import AbortRequests, AddRequest, Bye, Idle, StepOutputs, UtilityCall, UtilityReply
from tests.core.engines import request
from tests.loop.harness import TIMEOUT, Loop, reasons, tokens


def test_what_arrives_during_a_forward_pass_is_decoded_meanwhile() -> None:
    with Loop() as loop:
        a = loop.front_end()
        loop.gate.close()
        a.say(AddRequest(request("first")))
        step = loop.gate.next_step()
        before = loop.stats().num_received_in_step
        a.say(AddRequest(request("second")), UtilityCall(7, "is_alive", []), AbortRequests(["nobody"]))
        loop.take_in()
        assert loop.stats().num_received_in_step == before + 3
        assert loop.queues.inbox.qsize() == 3
        assert not step.outer.done()
        step.end()
        second = loop.gate.next_step()
        assert set(second.scheduled.num_scheduled_tokens) == {"first", "second"}
        assert a.hear_of(UtilityReply, lambda reply: reply.call_id == 7).value is True
        loop.gate.open()
        heard = a.outputs("first", "second")
    assert {name: len(outputs) for name, outputs in heard.items()} == {"first": 4, "second": 4}


def test_an_earlier_steps_outputs_are_encoded_and_sent_meanwhile() -> None:
    with Loop() as loop:
        a = loop.front_end()
        sending, may_send = threading.Event(), threading.Event()

        def on_send(peer: bytes, frames: object) -> None:
            sending.set()
            assert may_send.wait(TIMEOUT)

        loop.server.on_send = on_send
        loop.gate.close()
        a.say(AddRequest(request("r")))
        loop.gate.next_step().end()
        step = loop.gate.next_step()
        assert sending.wait(TIMEOUT)
        before = loop.stats().num_sent_in_step
        may_send.set()
        first = a.hear_of(StepOutputs).outputs.outputs
        loop.queues.outbox.put(ToPeer(a.peer, Idle(99)))
        a.hear_of(Idle)  # what was sent before it has been counted
        assert not step.outer.done()
        assert len(tokens(first)) == 1
        a.say(UtilityCall(1, "get_loop_stats", []))
        loop.gate.open()
        assert len(tokens(a.outputs("r")["r"])) == 3
        stats = a.hear_of(UtilityReply).value
    assert stats[4] >= before + 1, "num_sent_in_step"


def test_loop_stats_are_counted_since_the_start() -> None:
    with Loop() as loop:
        a = loop.front_end()
        a.say(AddRequest(request("r", max_tokens=3)))
        a.outputs("r")
        num_steps, num_received, received_in_step, num_sent, sent_in_step = a.call("get_loop_stats").value
        assert num_steps in (3, 4), "one for each token; one may have told the worker of the end"
        assert num_received == 3, "hello, the request, the call"
        assert 4 <= num_sent <= 6, "welcome, three tokens, maybe an empty step and an idle note"
        assert 0 <= received_in_step <= num_received
        assert 0 <= sent_in_step <= num_sent
        assert a.call("get_loop_stats", 1).error.startswith("no utility 'get_loop_stats'")


def test_an_abort_takes_effect_before_the_outputs_of_the_step_that_runs() -> None:
    with Loop() as loop:
        a = loop.front_end()
        loop.gate.close()
        with loop.together():
            a.say(AddRequest(request("gone")), AddRequest(request("stays")))
        step = loop.gate.next_step()
        assert set(step.scheduled.num_scheduled_tokens) == {"gone", "stays"}
        a.say(AbortRequests(["gone"]))
        loop.take_in()
        loop.gate.open()
        assert list(a.outputs("stays")) == ["stays"], "nothing for the other"
        stats = a.stats()
        assert (stats.num_running, stats.num_waiting, stats.num_free_blocks) == (0, 0, stats.num_blocks)
        loop.stop()
        assert a.rest_of_outputs() == []


def test_a_front_end_that_leaves_during_a_step_costs_the_others_nothing() -> None:
    with Loop() as loop:
        a, b, c = loop.front_end(b"a"), loop.front_end(b"b"), loop.front_end(b"c")
        loop.gate.close()
        with loop.together():
            for front, name in ((a, "ra"), (b, "rb"), (c, "rc")):
                front.say(AddRequest(request(name)))
        loop.gate.next_step()
        a.say(Bye())
        b.say(None)
        loop.take_in()
        loop.gate.open()
        assert reasons(c.outputs("rc")["rc"]) == [None, None, None, FinishReason.LENGTH]
        stats = c.stats()
        assert (stats.num_running, stats.num_waiting, stats.num_free_blocks) == (0, 0, stats.num_blocks)
        loop.stop()
        assert reasons(a.rest_of_outputs()) == [None], "of the step that ran, and no more"
        assert reasons(b.rest_of_outputs()) == [None]
