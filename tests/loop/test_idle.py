"""What the loop does when there is nothing to do: it waits, and tells each front end once."""

import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from enginecore.loop.queues import Event, Queues, Wakeup
from enginecore.messages import FinishReason
from enginecore.wire import AbortRequests, AddRequest, Idle, StepOutputs
from tests.core.engines import make_core, request
from tests.loop.harness import TIMEOUT, Loop, reasons
from tests.loop.scripted_core import CountedCore, ScriptedCore


def test_an_idle_loop_waits_and_asks_nobody() -> None:
    core: Any = CountedCore(make_core())
    with Loop(core) as loop:
        a = loop.front_end()
        a.say(AddRequest(request("r")))
        a.hear_of(Idle)
        core.counts.clear()
        for _ in range(20):
            a.call("is_alive")
        assert core.counts["advance"] == 0
        assert core.counts["call_utility"] == 20
        assert core.counts["has_requests"] <= 60, "twice or so for each round, and not while it waits"


IDLES = """
import time
from tests.core.engines import request
from tests.loop.harness import Loop
from enginecore.wire import AddRequest, Idle

with Loop() as loop:
    a = loop.front_end()
    a.say(AddRequest(request("r")))
    a.hear_of(Idle)
    used, started = time.process_time(), time.monotonic()
    time.sleep(1.0)
    print((time.process_time() - used) / (time.monotonic() - started))
"""


def test_an_idle_loop_takes_no_processor_time() -> None:
    result = subprocess.run(
        [sys.executable, "-c", IDLES],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )
    assert float(result.stdout) < 0.02


class Recording(SimpleQueue[Event]):
    """An inbox that keeps the timeouts with which it was asked."""

    def __init__(self) -> None:
        self.timeouts: list[float | None] = []

    def get(self, block: bool = True, timeout: float | None = None) -> Event:
        self.timeouts.append(timeout if block else 0)
        return super().get(block, timeout)


def test_it_leaves_a_moment_to_the_others_when_there_is_work_but_no_forward_pass_ran() -> None:
    inbox = Recording()
    core = ScriptedCore(ran=[True, False, False, True, True])
    loop = Loop(core, queues=Queues(inbox=inbox))
    with loop:
        loop.front_end().say(AddRequest(request("r")))
        assert core.done.wait(TIMEOUT)
        loop.stop()
    assert [timeout for timeout in inbox.timeouts if timeout is not None] == [0.0, 0.001, 0.001, 0.0]


def test_an_idle_note_says_how_many_requests_are_done_with_once() -> None:
    with Loop() as loop:
        a, b = loop.front_end(b"a"), loop.front_end(b"b")
        with loop.together():
            a.say(AddRequest(request("r1", max_tokens=1)), AddRequest(request("r2", max_tokens=3)))
        a.outputs("r1", "r2")
        assert a.hear_of(Idle, lambda idle: idle.num_added == 2)
        a.call("is_alive")
        a.say(AddRequest(request("r3")))
        a.outputs("r3")
        assert a.hear_of(Idle).num_added == 3
        loop.stop()
        assert not any(isinstance(message, Idle) for message in a.rest())
        assert [type(message).__name__ for message in b.rest()] == ["Dead"], "nothing was left of nothing"


def test_an_idle_note_comes_after_everything_else() -> None:
    with Loop() as loop:
        a = loop.front_end()
        a.say(AddRequest(request("r")))
        ended = False
        while not isinstance(message := a.hear(), Idle):
            assert isinstance(message, StepOutputs)
            ended = ended or FinishReason.LENGTH in reasons(message.outputs.outputs)
        assert ended


def test_requests_that_were_refused_aborted_or_unreadable_count_too() -> None:
    with Loop() as loop:
        a = loop.front_end()
        unreadable = b"\x92\x02\x92\xa1u\xa1p"  # a request "u" whose prompt is text
        a.say(AddRequest(request("refused", prompt=0)), unreadable, AddRequest(request("aborted", max_tokens=500)))
        a.say(AbortRequests(["aborted"]))
        assert a.hear_of(Idle, lambda idle: idle.num_added == 3)
        assert reasons([*a.outputs("refused")["refused"], *a.outputs("u")["u"]]) == [FinishReason.ERROR] * 2


def test_no_idle_note_while_requests_of_anybody_run() -> None:
    with Loop() as loop:
        a, b = loop.front_end(b"a"), loop.front_end(b"b")
        loop.gate.close()
        b.say(AddRequest(request("rb")))
        loop.gate.next_step()
        a.say(AddRequest(request("ra", prompt=0)))
        loop.take_in()
        loop.gate.open()
        b.outputs("rb")
        assert a.hear_of(Idle).num_added == 1
        assert b.hear_of(Idle).num_added == 1


def test_no_idle_note_while_a_pause_keeps_requests_from_running() -> None:
    with Loop() as loop:
        a = loop.front_end()
        assert a.call("pause").failure is None
        a.say(AddRequest(request("r")))
        for _ in range(3):
            assert a.stats().num_waiting == 1
        assert not any(isinstance(message, Idle) for message in a.rest())
        assert a.call("resume").failure is None
        assert len(a.outputs("r")["r"]) == 4
        assert a.hear_of(Idle).num_added == 1


def test_an_idle_note_although_paused_if_nothing_is_left() -> None:
    with Loop() as loop:
        a = loop.front_end()
        assert a.call("pause").failure is None
        a.say(AddRequest(request("r")), AbortRequests(["r"]))
        assert a.hear_of(Idle).num_added == 1


class Endless(SimpleQueue[Event]):
    """An inbox in which there is always one more."""

    def get_nowait(self) -> Event:
        return super().get_nowait() if self.qsize() else Wakeup()


def test_steps_have_their_turn_however_much_there_is_to_take_in() -> None:
    with Loop(queues=Queues(inbox=Endless())) as loop:
        a = loop.front_end()
        a.say(AddRequest(request("r")))
        assert len(a.outputs("r")["r"]) == 4
