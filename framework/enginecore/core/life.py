"""Whether an engine core is alive, what it died of, and who is told."""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from typing import TypeVar

from enginecore.clock import Clock
from enginecore.errors import EngineDeadError

logger = logging.getLogger(__name__)

T = TypeVar("T")

NAP = 0.001
"""Seconds to sleep at a time where nothing is to be done before a certain time: something may arrive."""


class Life:
    """Remembers the first failure. `fail` and `register` may be called from any thread, the rest from the core's."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pid = os.getpid()
        self._lock = threading.RLock()  # a signal handler may come upon its own thread in here
        self._failure: BaseException | None = None
        self._callbacks: list[Callable[[BaseException], None]] = []
        self._wake: Future[None] | None = None  # of whoever waits for the executor

    def register(self, callback: Callable[[BaseException], None]) -> None:
        """Call it once with the failure: when there is one, or now if there has been one."""
        with self._lock:
            failure = self._failure
            if failure is None:
                self._callbacks.append(callback)
        if failure is not None and not isinstance(failure, _ShutDown):
            _tell(callback, failure)

    def fail(self, error: BaseException) -> None:
        """The engine is dead: remember the first cause, tell everybody, and wake whoever waits for the executor."""
        with self._lock:
            callbacks, self._callbacks = self._callbacks, []
            if self._failure is None:
                self._failure = error
        if (wake := self._wake) is not None:
            _resolve(wake)
        for callback in callbacks:
            _tell(callback, error)

    def end(self) -> None:
        """It was shut down: dead from now on, but of nothing that anybody must hear of."""
        with self._lock:
            self._callbacks.clear()
            if self._failure is None:
                self._failure = _ShutDown("the engine core was shut down")

    def check(self) -> None:
        """Raise EngineDeadError if it is dead, or lives in another process."""
        if os.getpid() != self._pid:
            raise EngineDeadError(
                f"this engine core runs in process {self._pid}, and this is process {os.getpid()}, forked from it: its "
                "threads were left behind; start an engine here, in a process made by spawn"
            )
        if self._failure is not None:
            raise EngineDeadError(f"the engine core is dead: {self._failure}") from self._failure

    @contextmanager
    def dying_of(self, what: str, spared: type[Exception] | tuple[()] = ()) -> Iterator[None]:
        """Whatever escapes here, but for what is spared, leaves the books in an unknown state: the engine is dead."""
        try:
            yield
        except spared:
            raise
        except BaseException as error:
            self.fail(error)
            if not isinstance(error, Exception):  # an interrupt goes on as what it is
                raise
            raise EngineDeadError(f"the engine core has failed in {what}: {type(error).__name__}: {error}") from error

    def wait(self, running: "Future[T]") -> T:
        """The result of a future of the executor; its failure, if that comes instead."""
        if not running.done():
            self._wake = wake = Future[None]()
            running.add_done_callback(lambda _: _resolve(wake))
            if self._failure is None:
                self._clock.wait(wake)
            self._wake = None
        if not running.done() and self._failure is not None:
            raise self._failure
        return running.result()

    def nap(self, wake_time: float | None) -> bool:
        """Let some time pass, up to `wake_time` at most. False if there is no such time."""
        if wake_time is None:
            return False
        self._clock.wait(deadline=min(wake_time, self._clock.now() + NAP))
        return True


class _ShutDown(EngineDeadError):
    """The end that everybody asked for."""


def _resolve(wake: "Future[None]") -> None:
    with suppress(InvalidStateError):  # the future and the failure may come at the same time
        wake.set_result(None)


def _tell(callback: Callable[[BaseException], None], error: BaseException) -> None:
    try:
        callback(error)
    except Exception:
        logger.exception("a failure callback of the engine core has failed itself")
