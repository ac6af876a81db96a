"""Calls on other threads, waited for with patience, for both kinds of bench."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from enginecore_conformance.checks import Violation

T = TypeVar("T")
HELPER = "check-helper"
"""Name of the threads."""


class Background:
    """Calls functions on threads of their own.

    Attributes:
        patience: Seconds to wait for what should be there at once.
    """

    def __init__(self, patience: float) -> None:
        self.patience = patience

    def start_call(self, function: Callable[..., T], *args: Any) -> "Future[T]":
        """Call a function on a thread of its own."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function(*args))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name=HELPER, daemon=True).start()
        return future

    def finish(self, future: "Future[T]", what: str) -> T:
        """Result of the call; it must be there within patience."""
        if not wait([future], self.patience).done:
            raise Violation(f"{what} did not return within {self.patience:g} s", "it returns at once")
        return future.result()

    def call(self, what: str, function: Callable[..., T], *args: Any) -> T:
        """The result of a call on another thread; it must be there within patience."""
        return self.finish(self.start_call(function, *args), what)

    def until(self, holds: Callable[[], bool]) -> bool:
        """Whether something comes true within patience."""
        deadline = time.monotonic() + self.patience
        while not holds():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True
