"""Whatever fails, the loop ends with a last word that says why, and everybody who is left is told."""

import gc
import os
import threading
from typing import Any

import msgspec
import pytest

from enginecore.loop import InputThread
from enginecore.loop.queues import Queues
from enginecore.scheduling import RequestView, SchedulerView, SchedulingPolicy, Split, policy_component
from enginecore.wire import SCHEMA, AddRequest, Dead, Hello, UtilityCall
from tests.core.engines import request
from tests.loop.harness import TIMEOUT, FrontEnd, Loop
from tests.loop.memory_channel import MemoryServer
from tests.loop.scripted_core import ScriptedCore


def check_last_words(loop: Loop, reason: str, cause: str, *fronts: FrontEnd) -> None:
    """The loop has ended by itself; each front end has heard so, and nothing after it."""
    last = loop.last
    assert reason in last.reason
    assert "Traceback" in last.traceback
    assert cause in last.traceback
    for front in fronts:
        assert [message for message in front.rest() if isinstance(message, Dead)] == [last]
        assert front.rest() == []


class Cursed(SchedulingPolicy):
    """Fails as soon as it is asked anything."""

    error: BaseException = RuntimeError("no order")

    def rank(self, request: RequestView, scheduler: SchedulerView) -> float:
        return request.arrival

    def split(self, scheduler: SchedulerView) -> Split:
        raise self.error


class CursedOtherwise(Cursed):
    """With what is no Exception."""

    error = SystemExit("leaving")


# -- engine core -----------------------------------------------------------------------------------------------------


def test_a_step_that_fails_ends_the_loop() -> None:
    with Loop(oracle={"faults": [{"kind": "fail", "step": 2}]}) as loop:
        a, b = loop.front_end(b"a"), loop.front_end(b"b")
        a.say(AddRequest(request("r")))
        reason = "the engine core has failed in a step: StepError: step 2 (1 tokens of 1 requests: 'r': 1"
        check_last_words(loop, reason, "OracleFault: the oracle was set to fail at step 2", a, b)


def test_a_scheduler_that_raises_ends_the_loop() -> None:
    with Loop(components=[policy_component("cursed", Cursed)], scheduler={"use": "cursed"}) as loop:
        a = loop.front_end()
        a.say(AddRequest(request("r")))
        check_last_words(loop, "RuntimeError: no order", "in split", a)


def test_what_is_no_exception_ends_the_loop_with_a_word_too() -> None:
    with Loop(components=[policy_component("cursed", CursedOtherwise)], scheduler={"use": "cursed"}) as loop:
        a = loop.front_end()
        a.say(AddRequest(request("r")))
        check_last_words(loop, "the engine core has failed: SystemExit: leaving", "in split", a)


@pytest.mark.parametrize("method", ["add_request", "has_requests", "abort_client", "finish_all", "abort_requests"])
def test_a_fault_of_the_engine_core_itself_ends_the_loop(method: str) -> None:
    def fail(*args: Any) -> Any:
        raise KeyError(method)

    core = ScriptedCore(ran=[True])
    with Loop(core) as loop:
        a, b = loop.front_end(b"a"), loop.front_end(b"b")
        setattr(core, method, fail)
        a.say(AddRequest(request("r")))
        match method:
            case "abort_client":
                b.say(None)
            case "abort_requests":
                b.say(b"\x92\x03\x91\xa1x")
            case "finish_all":
                loop.proc.request_shutdown("test")
        check_last_words(loop, "", f"KeyError: '{method}'", a)


def test_an_error_that_holds_no_text_and_no_end_is_said_all_the_same() -> None:
    def fail(*args: Any) -> Any:
        raise OSError("x" * 100_000 + "/tmp/\udcff")

    core = ScriptedCore(ran=[True])
    core.advance = fail  # type: ignore[method-assign]
    with Loop(core) as loop:
        a = loop.front_end()
        a.say(AddRequest(request("r")))
        last = loop.last
        assert last.reason.startswith("the engine core has failed: OSError: xxx")
        assert len(last.reason) < 3000
        assert len(last.traceback) < 30_000
        assert r"/tmp/\udcff" in last.traceback
        assert a.rest()[-1] == last


# -- executor --------------------------------------------------------------------------------------------------------


def test_an_executor_that_reports_a_failure_while_idle_ends_the_loop() -> None:
    with Loop() as loop:
        a, b = loop.front_end(b"a"), loop.front_end(b"b")
        loop.core.executor.report(RuntimeError("rank 3 is gone"))
        check_last_words(loop, "the executor has failed: RuntimeError: rank 3 is gone", "rank 3 is gone", a, b)


def test_an_executor_that_reports_a_failure_during_a_step_ends_the_loop_at_once() -> None:
    with Loop() as loop:
        a = loop.front_end()
        loop.gate.close()
        a.say(AddRequest(request("r")), AddRequest(request("waits")))
        step = loop.gate.next_step()
        a.say(UtilityCall(1, "is_alive", []))
        loop.core.executor.report(RuntimeError("rank 3 is gone"))
        check_last_words(loop, "rank 3 is gone", "RuntimeError: rank 3 is gone", a)
        assert not step.outer.done(), "nobody waits for it any more"


def test_an_executor_that_fails_twice_fails_once() -> None:
    with Loop() as loop:
        a = loop.front_end()
        for number in range(3):
            loop.core.executor.report(RuntimeError(f"failure {number}"))
        check_last_words(loop, "failure 0", "failure 0", a)


def test_a_core_that_died_before_the_loop_began_ends_it() -> None:
    core = ScriptedCore()
    loop = Loop(core)
    core.callbacks[0](RuntimeError("too early"))
    with loop:
        check_last_words(loop, "too early", "RuntimeError: too early")


# -- IO threads ------------------------------------------------------------------------------------------------------


def test_an_input_thread_that_fails_ends_the_loop() -> None:
    def fail() -> None:
        raise OSError("socket is gone")

    with Loop() as loop:
        a, b = loop.front_end(b"a"), loop.front_end(b"b")
        loop.server.on_receive = fail
        a.say(AddRequest(request("r")))
        check_last_words(loop, "the input thread has failed: OSError: socket is gone", "in fail", a, b)


def test_an_input_thread_that_fails_during_a_step_ends_the_loop_after_it() -> None:
    def fail() -> None:
        raise OSError("socket is gone")

    with Loop() as loop:
        a = loop.front_end()
        loop.gate.close()
        a.say(AddRequest(request("r")))
        loop.gate.next_step()
        loop.server.on_receive = fail
        a.say(UtilityCall(1, "is_alive", []))
        loop.gate.open()
        check_last_words(loop, "the input thread has failed: OSError: socket is gone", "socket is gone", a)


@pytest.mark.parametrize("error", [OSError("socket is gone"), SystemExit(3), MemoryError()], ids=repr)
def test_an_output_thread_that_fails_ends_the_loop(error: BaseException) -> None:
    def fail(peer: bytes, frames: object) -> None:
        raise error

    with Loop() as loop:
        a = loop.front_end()
        loop.server.on_send = fail
        a.say(AddRequest(request("r", max_tokens=500)))
        last = loop.last
        assert f"the output thread has failed: {type(error).__name__}: {error}" in last.reason
        assert "in fail" in last.traceback
        assert a.rest() == [], "nobody is left to say it; the process's end says the rest"


def test_a_message_for_which_there_is_no_substitute_ends_the_loop() -> None:
    core = ScriptedCore()
    core.info = msgspec.structs.replace(core.info, model="/models/\udcff")
    with Loop(core) as loop:
        loop.stranger().say(Hello(SCHEMA))
        assert "the output thread has failed: WireError: cannot be sent to another process" in loop.last.reason


# -- what is left ----------------------------------------------------------------------------------------------------


def fds() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("end", ["stop", "input", "output", "executor"])
def test_no_descriptor_and_no_thread_is_left_however_it_ends(end: str) -> None:
    def fail(*args: object) -> None:
        raise OSError("gone")

    gc.collect()
    before = fds(), set(threading.enumerate())
    with Loop() as loop:
        a = loop.front_end()
        match end:
            case "input":
                loop.server.on_receive = fail
            case "output":
                loop.server.on_send = fail
            case "executor":
                loop.core.executor.report(RuntimeError("gone"))
        a.say(AddRequest(request("r")))
        assert (loop.stop() if end == "stop" else loop.last).reason
    gc.collect()
    assert (fds(), set(threading.enumerate())) == before


def test_an_input_thread_stops_although_there_is_always_something_to_receive() -> None:
    class Flooded(MemoryServer):
        def receive(self) -> tuple[bytes, list[bytes]]:
            received.set()
            return b"a", [b""]

    received = threading.Event()
    server, queues = Flooded(), Queues()
    thread = InputThread(server, queues, abort_at_once=lambda peer, ids: None)
    thread.start()
    assert received.wait(TIMEOUT)
    assert thread.stop(TIMEOUT)
    server.close()


def test_an_output_thread_sends_what_is_queued_before_it_stops() -> None:
    with Loop() as loop:
        a = loop.front_end()
        a.say(*(UtilityCall(number, "is_alive", []) for number in range(50)))
        loop.take_in()
        loop.stop()
        assert len(a.rest()) == 51


def test_a_thread_that_hangs_in_the_transport_is_told_of() -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        assert goes_on.wait(TIMEOUT)

    with Loop() as loop:
        loop.front_end()
        loop.server.on_receive = hang
        loop.stranger().say(b"x")
        assert hangs.wait(TIMEOUT)
        other = InputThread(loop.server, loop.queues, abort_at_once=loop.proc.abort_at_once)
        other.start()
        assert not other.stop(0.01)
        goes_on.set()
        other._thread.join(TIMEOUT)
        os.close(other._control)
