"""A guard that delays Ctrl-C to the end of a step."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class InterruptGuard:
    """While entered, the first Ctrl-C waits until the end; a second one strikes at once.

    A step that is cut in the middle would leave an engine core in the same process with a batch
    that never returns, and the engine could not be used any more. Does nothing where Python's own
    handler is not in charge.
    """

    __slots__ = ("_interrupted", "_previous")

    def __init__(self) -> None:
        self._interrupted = False
        self._previous: Any = None

    def __enter__(self) -> Self:
        in_charge = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if in_charge and threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
        if self._interrupted and kind is None:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = True
