"""Orders that are not answered yet, and the futures of those who wait. Free of torch."""

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from enginecore.errors import EngineDeadError
from enginecore.messages import ModelRunnerOutput


class _CallAnswers:
    """An order that every rank answers.

    Attributes:
        future: Gives the values in order of rank.
        values: Answers so far, by rank.
    """

    def __init__(self) -> None:
        self.future: Future[list[Any]] = Future()
        self.values: dict[int, Any] = {}


class Orders:
    """Thread-safe; no lock is held while anything waits.

    Attributes:
        ended: The first error that ended it all; None while orders are taken.
    """

    def __init__(self, num_ranks: int, now: Callable[[], float]) -> None:
        """`now`: seconds on the clock that steps are timed by."""
        self._num_ranks, self._now = num_ranks, now
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._steps: dict[int, Future[ModelRunnerOutput | None]] = {}
        self._calls: dict[int, _CallAnswers] = {}
        self._oldest_began = now()
        self._refusal = ""
        self.ended: BaseException | None = None

    def check(self) -> None:
        """Return if orders are taken.

        Raises:
            EngineDeadError: they are not; says why.
        """
        if self.ended is not None:
            raise EngineDeadError(self._refusal) from self.ended

    def new_number(self) -> int:
        """Number of an order that no rank answers."""
        with self._lock:
            self.check()
            return next(self._numbers)

    def add_step(self) -> "tuple[int, Future[ModelRunnerOutput | None]]":
        """Number and future of a step."""
        future: Future[ModelRunnerOutput | None] = Future()
        with self._lock:
            self.check()
            number = next(self._numbers)
            if not self._steps:
                self._oldest_began = self._now()
            self._steps[number] = future
        return number, future

    def add_call(self) -> "tuple[int, Future[list[Any]]]":
        """Number and future of an order that every rank answers."""
        call = _CallAnswers()
        with self._lock:
            self.check()
            number = next(self._numbers)
            self._calls[number] = call
        return number, call.future

    def drop(self, number: int) -> None:
        """Forget an order that could not be sent."""
        with self._lock:
            self._steps.pop(number, None)
            self._calls.pop(number, None)

    def step_done(self, number: int, output: ModelRunnerOutput) -> None:
        """The output rank has answered; the next step begins now."""
        with self._lock:
            self._oldest_began = self._now()
            future = self._steps.pop(number, None)
        if future is not None:
            with suppress(InvalidStateError):  # cancelled
                future.set_result(output)

    def answered(self, number: int, rank: int, value: Any) -> None:
        """A rank has answered a call. Late answers to one that has failed are dropped."""
        with self._lock:
            call = self._calls.get(number)
            if call is None:
                return
            call.values[rank] = value
            if len(call.values) < self._num_ranks:
                return
            del self._calls[number]
        with suppress(InvalidStateError):
            call.future.set_result([call.values[rank] for rank in sorted(call.values)])

    def call_failed(self, number: int, error: BaseException) -> None:
        """A rank could not do what the call asks; the first that says so fails it."""
        with self._lock:
            call = self._calls.pop(number, None)
        if call is not None:
            with suppress(InvalidStateError):
                call.future.set_exception(error)

    def stalled_for(self) -> float:
        """Seconds for which the oldest step has run; 0 if there is none."""
        with self._lock:
            return self._now() - self._oldest_began if self._steps else 0.0

    def refuse(self, error: BaseException, refusal: str) -> bool:
        """Take no more orders; `check` raises the refusal. False if none were taken any more."""
        with self._lock:
            if self.ended is not None:
                return False
            self._refusal = refusal
            self.ended = error
        return True

    def fail_all(self) -> None:
        """Give the error that ended it all to every future that still waits."""
        with self._lock:
            waiting: list[Future[Any]] = [*self._steps.values(), *(call.future for call in self._calls.values())]
            self._steps.clear()
            self._calls.clear()
        for future in waiting:
            with suppress(InvalidStateError):
                future.set_exception(self.ended)
