import threading
from concurrent.futures import Future
from typing import Any

import pytest

from enginecore.clock import RealClock, VirtualClock
from enginecore.errors import EngineCoreError


def test_virtual_time_jumps_to_the_event_that_completes_the_future() -> None:
    clock = VirtualClock(start=100.0)
    future: Future[str] = Future()
    clock.call_at(3600.0 * 24, lambda: future.set_result("done"))
    assert clock.wait(future)
    assert (future.result(), clock.now()) == ("done", 3600.0 * 24)


def test_events_run_in_order_of_time_and_ties_in_order_of_registration() -> None:
    clock = VirtualClock()
    seen: list[tuple[str, float]] = []
    for name, when in (("late", 2.0), ("tie 1", 1.0), ("tie 2", 1.0), ("early", 0.5)):
        clock.call_at(when, lambda name=name: seen.append((name, clock.now())))  # type: ignore[misc]
    assert not clock.wait(deadline=5.0)
    assert seen == [("early", 0.5), ("tie 1", 1.0), ("tie 2", 1.0), ("late", 2.0)]
    assert clock.now() == 5.0


def test_a_wait_ends_at_its_deadline_and_leaves_later_events_alone() -> None:
    clock = VirtualClock()
    future: Future[None] = Future()
    clock.call_at(2.0, lambda: future.set_result(None))
    assert not clock.wait(future, deadline=1.0)
    assert clock.now() == 1.0
    assert clock.next_event() == 2.0
    assert clock.wait(future)
    assert clock.next_event() is None


def test_an_event_that_is_due_at_the_deadline_of_a_wait_has_run_when_it_ends() -> None:
    clock = VirtualClock()
    seen: list[float] = []
    clock.call_at(1.0, lambda: seen.append(clock.now()))
    assert not clock.wait(deadline=1.0)
    assert seen == [1.0]


def test_an_event_may_register_another() -> None:
    clock = VirtualClock()
    future: Future[None] = Future()
    clock.call_at(1.0, lambda: clock.call_at(4.0, lambda: future.set_result(None)))
    assert clock.wait(future)
    assert clock.now() == 4.0


def test_waiting_for_what_can_never_come_is_an_error_in_virtual_time() -> None:
    future: Future[None] = Future()
    with pytest.raises(EngineCoreError, match="virtual time stands still"):
        VirtualClock().wait(future)


@pytest.mark.parametrize("clock", [RealClock(), VirtualClock()])
def test_a_future_that_failed_ends_the_wait(clock: Any) -> None:
    future: Future[None] = Future()
    future.set_exception(RuntimeError("boom"))
    assert clock.wait(future)


def test_real_time_waits_for_another_thread() -> None:
    clock = RealClock()
    future: Future[int] = Future()
    thread = threading.Thread(target=lambda: future.set_result(7))
    clock.call_at(clock.now(), thread.start)
    assert clock.wait(future, deadline=clock.now() + 30)
    assert future.result() == 7
    thread.join()


def test_real_time_runs_events_not_before_their_time() -> None:
    clock = RealClock()
    future: Future[float] = Future()
    due = clock.now() + 0.02
    clock.call_at(due, lambda: future.set_result(clock.now()))
    assert clock.wait(future, deadline=clock.now() + 30)
    assert future.result() >= due


def test_a_cancelled_future_ends_a_real_wait() -> None:
    clock = RealClock()
    future: Future[None] = Future()

    def cancel() -> None:
        future.cancel()

    clock.call_at(clock.now(), cancel)
    assert clock.wait(future, deadline=clock.now() + 30)


def test_a_real_wait_for_nothing_is_an_error() -> None:
    with pytest.raises(EngineCoreError, match="never return"):
        RealClock().wait()
