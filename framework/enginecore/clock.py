"""Time, as engine, policies and executors see it. Nothing else may be asked for the time.

A clock holds a heap of callbacks. `wait` runs those that fall due, in order of time, on the caller's
thread: there is no timer thread. A real clock sleeps up to the next callback, a virtual one jumps to
it, so that an executor that completes its futures by `call_at` runs unchanged on both.
"""

import heapq
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from enginecore.errors import EngineCoreError


class Clock(ABC):
    """Source of time in seconds. Not thread-safe: one engine core owns it."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = itertools.count()

    @abstractmethod
    def now(self) -> float:
        """Seconds since an arbitrary origin; never goes back."""

    @abstractmethod
    def _pass(self, until: float | None, future: "Future[Any] | None") -> None:
        """Let time pass to `until` (None: without limit) or to the end of `future`, whichever comes first."""

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        """Run `callback` inside the first `wait` that reaches the time `when`; ties run in order of registration."""
        heapq.heappush(self._due, (when, next(self._serial), callback))

    def wait(self, future: "Future[Any] | None" = None, deadline: float | None = None) -> bool:
        """Return once `future` is done (True) or the time `deadline` is reached (False).

        Raises:
            EngineCoreError: on a virtual clock, if nothing that is scheduled can ever end the wait.
        """
        while future is None or not future.done():
            when = self._due[0][0] if self._due else None
            if when is not None and when <= self.now():
                heapq.heappop(self._due)[2]()
                continue
            if deadline is not None and self.now() >= deadline:
                return False
            self._pass(min((t for t in (when, deadline) if t is not None), default=None), future)
        return True

    def next_event(self) -> float | None:
        """The time of the earliest registered callback, or None."""
        return self._due[0][0] if self._due else None


class RealClock(Clock):
    """Wall time, monotonic."""

    def now(self) -> float:
        return time.monotonic()

    def _pass(self, until: float | None, future: "Future[Any] | None") -> None:
        seconds = None if until is None else max(until - self.now(), 0.0)
        if future is None:
            if seconds is None:
                raise EngineCoreError("Clock.wait() with neither a future nor a deadline would never return")
            time.sleep(seconds)
            return
        try:
            future.exception(timeout=seconds)
        except FutureTimeout:
            return


class VirtualClock(Clock):
    """Simulated time: passes only inside `wait`, by jumps to the next event."""

    def __init__(self, start: float = 0.0) -> None:
        super().__init__()
        self._now = start

    def now(self) -> float:
        return self._now

    def _pass(self, until: float | None, future: "Future[Any] | None") -> None:
        if until is None:
            raise EngineCoreError(
                "virtual time stands still: a wait has no deadline and no event is scheduled that could end it; "
                "an executor on a virtual clock completes its futures through clock.call_at()"
            )
        self._now = max(self._now, until)
