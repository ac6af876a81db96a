"""Shutdown: what runs is drained or ended, what comes is refused by name, and nobody is left without a word.

Where time matters it is virtual: a step of the oracle takes a second, and a shutdown is asked for in the middle of one.
"""

import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from enginecore.clock import VirtualClock
from enginecore.messages import FinishReason, SchedulerOutput
from enginecore.plugin import Component, ExecutorContext
from enginecore.wire import (
    SCHEMA,
    AddRequest,
    Dead,
    Hello,
    Rejected,
    Shutdown,
    StepOutputs,
    UtilityCall,
    UtilityFailure,
    UtilityReply,
    Welcome,
)
from enginecore_conformance.oracle.executor import OracleExecutor
from enginecore_conformance.oracle.settings import OracleSettings
from tests.core.engines import make_core, request
from tests.loop.harness import TIMEOUT, FrontEnd, Loop, reasons, tokens

ABORTED = [FinishReason.ABORT]


class HookedExecutor(OracleExecutor):
    """Calls something when a step is submitted, on the loop's thread, as a signal would."""

    hooks: dict[int, Callable[[], None]]

    def execute_model(self, scheduled: SchedulerOutput) -> Any:
        future = super().execute_model(scheduled)
        self.hooks.pop(scheduled.step, lambda: None)()
        return future


class VirtualLoop(Loop):
    """A step takes a second of virtual time; `hooks` are called in steps, by number."""

    def __init__(self, *, shutdown_timeout: float, **settings: Any) -> None:
        self.hooks: dict[int, Callable[[], None]] = {}

        def factory(settings: OracleSettings, context: ExecutorContext) -> HookedExecutor:
            executor = HookedExecutor(settings, context)
            executor.hooks = self.hooks
            return executor

        clock = VirtualClock()
        component = Component(kind="executor", name="hooked", factory=factory, settings=OracleSettings)
        core = make_core(
            components=[component],
            executor={"use": "hooked", "hooked": {"step_time": 1.0}},
            clock=clock,
            debug={"check_invariants": True},
            **settings,
        )
        super().__init__(core, shutdown_timeout=shutdown_timeout, clock=clock)

    def interrupt(self) -> None:
        """A shutdown is asked for in the step that runs."""
        self.proc.request_shutdown("test")


def check_end(front: FrontEnd, reason: str = "the engine core was shut down: test") -> None:
    """The last word is there, and it is the last one."""
    assert front.rest() == [Dead(reason)]


# -- at once ---------------------------------------------------------------------------------------------------------


def test_without_a_timeout_all_requests_end_at_once_with_reason_abort() -> None:
    with Loop(max_num_seqs=2) as loop:
        a, b = loop.front_end(b"a"), loop.front_end(b"b")
        loop.gate.close()
        with loop.together():
            a.say(*(AddRequest(request(f"a{number}", max_tokens=400)) for number in range(3)))
            b.say(AddRequest(request("b0", max_tokens=400)))
        loop.gate.next_step().end()
        step = loop.gate.next_step()
        loop.proc.request_shutdown("test")
        step.end()
        last = loop.last
        assert (last.reason, last.traceback) == ("the engine core was shut down: test", "")
        heard = {**a.outputs("a0", "a1", "a2"), **b.outputs("b0")}
        assert {name: outputs[-1].finish_reason for name, outputs in heard.items()} == dict.fromkeys(
            ["a0", "a1", "a2", "b0"], FinishReason.ABORT
        )
        assert sorted(len(tokens(outputs)) for outputs in heard.values()) == [0, 0, 2, 2]
        check_end(a)
        check_end(b)


def test_an_idle_loop_stops_at_once() -> None:
    with Loop(shutdown_timeout=10_000) as loop:
        a = loop.front_end()
        loop.proc.request_shutdown("test")
        assert loop.last.reason == "the engine core was shut down: test"
        check_end(a)


def test_a_shutdown_may_be_asked_for_before_the_loop_begins() -> None:
    loop = Loop(shutdown_timeout=10_000)
    loop.proc.request_shutdown("test")
    with loop:
        assert loop.last == Dead("the engine core was shut down: test")


def test_what_came_before_the_loop_began_is_refused_by_name() -> None:
    loop = Loop(shutdown_timeout=10_000)
    loop.proc.request_shutdown("test")
    a = loop.stranger()
    a.say(Hello(SCHEMA), AddRequest(request("r")), UtilityCall(1, "is_alive", []))
    loop.receiving.start()
    loop.take_in()
    loop.receiving.start = lambda: None  # type: ignore[method-assign]
    with loop:
        assert loop.last.reason == "the engine core was shut down: test"
        a.hear_of(Welcome)
        assert a.outputs("r")["r"][0].error == "no new requests: the engine core shuts down: test"
        assert a.hear_of(UtilityReply).error == "no utility 'is_alive': the engine core shuts down: test"
        check_end(a)


def test_what_came_too_late_is_answered_before_the_last_word() -> None:
    with Loop() as loop:
        a = loop.front_end()
        loop.gate.close()
        a.say(AddRequest(request("r", max_tokens=400)))
        step = loop.gate.next_step()
        loop.proc.request_shutdown("test")
        a.say(AddRequest(request("late")), UtilityCall(1, "is_alive", []))
        loop.take_in()
        step.end()
        assert loop.last.traceback == ""
        heard = a.outputs("r", "late")
        assert reasons(heard["r"]) == [None, FinishReason.ABORT]
        assert heard["late"][0].error == "no new requests: the engine core shuts down: test"
        assert a.hear_of(UtilityReply).failure is UtilityFailure.INVALID
        check_end(a)


# -- draining --------------------------------------------------------------------------------------------------------


def test_with_a_timeout_what_runs_and_what_waits_is_finished_first() -> None:
    loop = VirtualLoop(shutdown_timeout=100.0, max_num_seqs=1)
    loop.hooks[2] = loop.interrupt
    with loop:
        a = loop.front_end()
        with loop.together():
            a.say(AddRequest(request("runs", max_tokens=10)), AddRequest(request("waits", max_tokens=10)))
        assert loop.last.traceback == ""
        assert loop.clock.now() == 20.0, "as long as it takes, and no longer"
        heard = a.outputs("runs", "waits")
        assert {name: reasons(outputs)[-1] for name, outputs in heard.items()} == dict.fromkeys(
            heard, FinishReason.LENGTH
        )
        check_end(a)


def test_what_is_left_at_the_deadline_is_aborted() -> None:
    loop = VirtualLoop(shutdown_timeout=3.5)
    loop.hooks[2] = loop.interrupt  # at 1.0: the deadline is at 4.5
    with loop:
        a = loop.front_end()
        with loop.together():
            a.say(AddRequest(request("short", max_tokens=3)), AddRequest(request("long", max_tokens=400)))
        assert loop.last.traceback == ""
        heard = a.outputs("short", "long")
        assert loop.clock.now() == 5.0, "the step that runs at the deadline is the last"
        assert reasons(heard["short"])[-1] is FinishReason.LENGTH
        assert reasons(heard["long"])[-1] is FinishReason.ABORT
        assert len(tokens(heard["long"])) == 5
        check_end(a)


def test_while_it_drains_what_comes_is_refused_by_name_and_aborts_work() -> None:
    loop = VirtualLoop(shutdown_timeout=1000.0)

    def late() -> None:
        loop.interrupt()
        a.say(
            AddRequest(request("late")),
            UtilityCall(1, "is_alive", []),
            UtilityCall(2, "pause", []),
            b"\x92\x02\x92\xa1u\xa1p",
        )
        b.say(Hello(SCHEMA), AddRequest(request("later")))
        loop.take_in()

    def abort() -> None:
        a.say(None)
        loop.take_in()

    loop.hooks[3] = late
    loop.hooks[6] = abort
    with loop:
        a, b, c = loop.front_end(b"a"), loop.stranger(b"b"), loop.front_end(b"c")
        with loop.together():
            a.say(AddRequest(request("endless", max_tokens=480)))
            c.say(AddRequest(request("r", max_tokens=20)))
        assert loop.last.traceback == ""
        for front, name in ((a, "late"), (b, "later")):
            (refused,) = front.outputs(name)[name]
            assert refused.finish_reason is FinishReason.ERROR
            assert refused.error == "no new requests: the engine core shuts down: test"
        assert "the request is not valid" in (a.outputs("u")["u"][0].error or "")
        for name in ("is_alive", "pause"):
            reply = a.hear_of(UtilityReply)
            assert (reply.failure, reply.error) == (
                UtilityFailure.INVALID,
                f"no utility {name!r}: the engine core shuts down: test",
            )
        assert reasons(c.outputs("r")["r"])[-1] is FinishReason.LENGTH
        assert loop.clock.now() == 20.0, "nobody waited for whoever left"


def test_a_second_request_cuts_the_draining_short() -> None:
    loop = VirtualLoop(shutdown_timeout=1000.0)
    loop.hooks[2] = loop.interrupt
    loop.hooks[5] = lambda: loop.proc.request_shutdown("again")
    with loop:
        a = loop.front_end()
        a.say(AddRequest(request("r", max_tokens=400)))
        assert loop.last == Dead("the engine core was shut down: test"), "the first reason"
        assert loop.clock.now() == 5.0
        outputs = a.outputs("r")["r"]
        assert len(tokens(outputs)) == 5
        assert outputs[-1].finish_reason is FinishReason.ABORT
        check_end(a)


def test_a_shutdown_while_paused_does_not_wait_for_what_cannot_come() -> None:
    with Loop(shutdown_timeout=10_000.0) as loop:
        a = loop.front_end()
        assert a.call("pause").failure is None
        a.say(AddRequest(request("r")))
        assert a.stats().num_waiting == 1
        loop.proc.request_shutdown("test")
        assert loop.last.traceback == ""
        assert reasons(a.outputs("r")["r"]) == ABORTED
        check_end(a)


def test_a_failure_while_it_drains_is_the_last_word() -> None:
    with Loop(shutdown_timeout=10_000.0) as loop:
        a = loop.front_end()
        loop.gate.close()
        a.say(AddRequest(request("r", max_tokens=400)))
        loop.gate.next_step()
        loop.proc.request_shutdown("test")
        loop.core.executor.report(RuntimeError("rank 3 is gone"))
        assert "rank 3 is gone" in loop.last.reason
        assert a.rest()[-1] == loop.last


# -- who may ask for it ----------------------------------------------------------------------------------------------


def test_the_front_end_that_started_it_may_end_it_after_what_it_said_before() -> None:
    with Loop(owner_key="secret") as loop:
        a, b = loop.stranger(b"a"), loop.front_end(b"b")
        a.say(Hello(SCHEMA, "secret"))
        a.hear_of(Welcome)
        a.say(UtilityCall(1, "pause", []), AddRequest(request("r")), Shutdown())
        assert loop.last.reason == "the engine core was shut down: its front end ended it"
        assert a.hear_of(UtilityReply).failure is None
        assert reasons(a.outputs("r")["r"]) == ABORTED
        check_end(a, loop.last.reason)
        check_end(b, loop.last.reason)


@pytest.mark.parametrize(("owner_key", "key"), [("secret", ""), ("secret", "Secret"), ("", ""), ("", "secret")])
def test_nobody_else_may_end_it(owner_key: str, key: str) -> None:
    with Loop(owner_key=owner_key) as loop:
        a, other = loop.front_end(b"a"), loop.stranger(b"other")
        other.say(Hello(SCHEMA, key), Shutdown())
        assert "asked for the shutdown of an engine core that another one started" in other.hear_of(Rejected).reason
        a.say(AddRequest(request("r")))
        assert len(a.outputs("r")["r"]) == 4


# -- from a signal handler -------------------------------------------------------------------------------------------


def test_it_may_be_asked_for_from_a_signal_handler_that_interrupts_the_loop() -> None:
    """The loop runs on this thread, and a signal comes while it waits for input."""
    loop = Loop()
    a = loop.stranger()

    def send() -> None:
        a.hear_of(UtilityReply)
        signal.raise_signal(signal.SIGUSR1)

    loop.receiving.start()
    loop.sending.start()
    before = signal.signal(signal.SIGUSR1, lambda number, frame: loop.proc.request_shutdown("test"))
    wakeup = signal.set_wakeup_fd(loop.receiving.wakeup_fd)
    try:
        a.say(Hello(SCHEMA), UtilityCall(1, "is_alive", []))
        sender = threading.Thread(target=send)
        sender.start()
        last = loop.proc.run()
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGUSR1, before)
    sender.join(TIMEOUT)
    loop._last.set_result(last)
    assert loop.last == Dead("the engine core was shut down: test")


# -- the messages ----------------------------------------------------------------------------------------------------


def test_every_accepted_request_has_one_end() -> None:
    for timeout in (0.0, 4.0, 1000.0):
        loop = VirtualLoop(shutdown_timeout=timeout, max_num_seqs=3)
        loop.hooks[4] = loop.interrupt
        with loop:
            fronts = [loop.front_end(b"a"), loop.front_end(b"b")]
            with loop.together():
                for number in range(8):
                    fronts[number % 2].say(AddRequest(request(f"{number % 2}-{number}", max_tokens=1 + 3 * number)))
            assert loop.last.traceback == ""
            for side, front in enumerate(fronts):
                messages = front.rest()
                assert isinstance(messages.pop(), Dead)
                outputs = [output for message in messages if isinstance(message, StepOutputs)
                           for output in message.outputs.outputs]  # fmt: skip
                ends = [output.request_id for output in outputs if output.finish_reason is not None]
                assert sorted(ends) == [f"{side}-{number}" for number in range(side, 8, 2)]
