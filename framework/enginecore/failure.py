"""FirstFailure: the first failure of a component, remembered and passed on to each callback once."""

import logging
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)


class FirstFailure:
    """Remembers the first failure and calls every registered callback with it, once.

    All methods may be called from any thread, and from a signal handler. Callbacks run on the
    thread that calls `fail` or `register`, outside of the lock; one that raises is logged, and the
    others are called all the same.

    Args:
        name: Name of the component in the log: "the engine core".
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.RLock()  # a signal handler may interrupt its own thread in here
        self._error: BaseException | None = None
        self._is_closed = False
        self._callbacks: list[Callable[[BaseException], None]] = []

    @property
    def error(self) -> BaseException | None:
        """The first failure; None while there is none."""
        return self._error

    def register(self, callback: Callable[[BaseException], None]) -> None:
        """Call `callback` with the failure when there is one; at once if there has been one."""
        with self._lock:
            error = self._error
            if error is None and not self._is_closed:
                self._callbacks.append(callback)
        if error is not None:
            self._call(callback, error)

    def fail(self, error: BaseException) -> bool:
        """Remember `error` and call the callbacks with it. False: there was a failure before, or
        `close` was called; nothing happens then.
        """
        with self._lock:
            if self._error is not None or self._is_closed:
                return False
            self._error = error
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._call(callback, error)
        return True

    def close(self) -> None:
        """An orderly end: what fails from now on is not remembered, and no callback is called."""
        with self._lock:
            self._is_closed = True
            self._callbacks.clear()

    def _call(self, callback: Callable[[BaseException], None], error: BaseException) -> None:
        try:
            callback(error)
        except Exception:
            logger.exception("a failure callback of %s has failed itself", self._name)
