"""Liveness: whether the engine core can run, and what ended it."""

import os
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import NoReturn, TypeVar

from enginecore.clock import Clock
from enginecore.errors import EngineDeadError
from enginecore.failure import FirstFailure

T = TypeVar("T")


class Liveness:
    """The engine core's first failure, and waiting for the executor until there is one.

    `fail` and `register` may be called from any thread, the rest from the engine core's.

    Args:
        clock: The engine's, on which it waits.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pid = os.getpid()
        self._failure = FirstFailure("the engine core")
        self._failure.register(self._stop_waiting)
        self._is_shut_down = False
        self._wake: Future[None] | None = None  # done when the executor has answered, or the engine core has failed

    def register(self, callback: Callable[[BaseException], None]) -> None:
        """Call it once with the failure: when there is one, or now if there has been one."""
        self._failure.register(callback)

    def fail(self, error: BaseException) -> None:
        """The engine core cannot run any more: end the wait for the executor, and call the callbacks."""
        self._failure.fail(error)

    def end(self) -> None:
        """The engine core was shut down: no failure, so no callback is called."""
        self._is_shut_down = True
        self._failure.close()

    def check(self) -> None:
        """Return if the engine core can run.

        Raises:
            EngineDeadError: it has failed, was shut down, or runs in another process.
        """
        if os.getpid() != self._pid:
            raise EngineDeadError(
                f"this engine core runs in process {self._pid}, and this is process {os.getpid()}, forked from it: its "
                "threads were left behind; start an engine here, in a process made by spawn"
            )
        if (error := self._failure.error) is not None:
            raise EngineDeadError(f"the engine core is dead: {error}") from error
        if self._is_shut_down:
            raise EngineDeadError("the engine core is dead: the engine core was shut down")

    def die(self, what: str, error: BaseException) -> NoReturn:
        """End by an error that escaped from `what`: the books are in an unknown state.

        Raises:
            EngineDeadError: always, because of `error`; an interrupt is raised as it is.
        """
        self._failure.fail(error)
        if not isinstance(error, Exception):
            raise error
        raise EngineDeadError(f"the engine core has failed in {what}: {type(error).__name__}: {error}") from error

    def dying_of(self, what: str, spared: type[Exception] | tuple[()] = ()) -> "_DyingOf":
        """A context: what escapes from it, but for what is spared, ends the engine core by `die`."""
        return _DyingOf(self, what, spared)

    def wait(self, running: "Future[T]") -> T:
        """The result of a future of the executor; the engine core's failure, if that comes instead."""
        if not running.done():
            self._wake = wake = Future[None]()
            running.add_done_callback(lambda _: _resolve(wake))
            if self._failure.error is None:
                self._clock.wait(wake)
            self._wake = None
        if not running.done() and (error := self._failure.error) is not None:
            raise error
        return running.result()

    def _stop_waiting(self, error: BaseException) -> None:
        if (wake := self._wake) is not None:
            _resolve(wake)


class _DyingOf:
    """See `Liveness.dying_of`. A class, since a generator would cost a microsecond at each use."""

    __slots__ = ("_liveness", "_spared", "_what")

    def __init__(self, liveness: Liveness, what: str, spared: type[Exception] | tuple[()]) -> None:
        self._liveness = liveness
        self._what = what
        self._spared = spared

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None and not isinstance(error, self._spared):
            self._liveness.die(self._what, error)


def _resolve(wake: "Future[None]") -> None:
    with suppress(InvalidStateError):  # the future and the failure may come at the same time
        wake.set_result(None)
