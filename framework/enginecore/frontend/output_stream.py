"""The stream on which the consumer of one request waits for outputs."""

import asyncio

from enginecore.errors import EngineDeadError
from enginecore.frontend.outputs import RequestOutput
from enginecore.frontend.request_state import RequestState


class OutputStream:
    """Says that a request has news, and makes the output when it is taken. Holds none: see
    `RequestState`.

    Attributes:
        state: The request.
    """

    __slots__ = ("_failure", "_has_news", "_loop", "_waiter", "state")

    def __init__(self, state: RequestState, loop: asyncio.AbstractEventLoop) -> None:
        """For a consumer in `loop`."""
        self.state = state
        self._loop = loop
        self._has_news = False
        self._failure: EngineDeadError | None = None
        self._waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """There is news."""
        self._has_news = True
        if self._waiter is not None:
            self.nudge()

    def fail(self, failure: EngineDeadError) -> None:
        """There will be no more news than there is."""
        self._failure = failure
        self.nudge()

    def nudge(self) -> None:
        """Have the consumer, if it waits, look again."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            try:
                waiter.set_result(None)
            except RuntimeError:  # the consumer is gone with its event loop
                return

    def abandon(self) -> None:
        """The consumer is gone with its event loop."""
        self._waiter = None

    def take(self) -> RequestOutput | None:
        """All news since it was last taken as one output; None: there is none yet.

        Raises:
            EngineDeadError: there is none, and there will be none.
        """
        if self._has_news:
            self._has_news = False
            return self.state.make_output()
        if self._failure is not None:
            raise EngineDeadError(*self._failure.args) from self._failure.__cause__
        return None

    def wait(self) -> "asyncio.Future[None]":
        """Done when it is worth to `take` again."""
        waiter = self._loop.create_future()
        if self._has_news:
            waiter.set_result(None)
        else:
            self._waiter = waiter
        return waiter
