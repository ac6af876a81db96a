"""BatchQueue: the steps in flight, oldest first."""

from collections import deque
from concurrent.futures import Future
from typing import cast

from enginecore.interfaces import ExecutorCapabilities
from enginecore.messages import ModelRunnerOutput, SchedulerOutput


class BatchInFlight:
    """A step in flight.

    Attributes:
        scheduled: Plan of the step.
        running: The executor's answer to it: of the forward pass, or of its sampling.
        is_sampled: Whether the executor was asked to sample it.
    """

    __slots__ = ("is_sampled", "running", "scheduled")

    def __init__(self, scheduled: SchedulerOutput, running: "Future[ModelRunnerOutput | None]") -> None:
        self.scheduled = scheduled
        self.running: Future[ModelRunnerOutput | None] = running
        self.is_sampled = False

    def sample(self, running: "Future[ModelRunnerOutput]") -> None:
        """Record that the sampling of the step runs now."""
        self.running = cast("Future[ModelRunnerOutput | None]", running)  # a future is only read
        self.is_sampled = True


class BatchQueue:
    """Steps that were submitted and not settled. They are settled in order.

    Args:
        capabilities: Capabilities of the executor: how many steps it takes, and whether it feeds
            tokens.
    """

    def __init__(self, capabilities: ExecutorCapabilities) -> None:
        self._depth = capabilities.max_concurrent_batches
        self._feeds_tokens = capabilities.feeds_tokens
        self._batches: deque[BatchInFlight] = deque()

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def has_room(self) -> bool:
        """Whether the next step may be submitted. Where the executor feeds tokens it may not before the sampling of
        the step before was asked for: its forward pass may need those tokens.
        """
        batches = self._batches
        if not batches:
            return True
        if len(batches) >= self._depth:
            return False
        newest = batches[-1]
        return not self._feeds_tokens or newest.is_sampled or not newest.scheduled.defer_sampling

    @property
    def oldest(self) -> BatchInFlight:
        """The next to be settled.

        Raises:
            IndexError: nothing is in flight.
        """
        return self._batches[0]

    def append(self, scheduled: SchedulerOutput, running: "Future[ModelRunnerOutput | None]") -> None:
        """A step was submitted."""
        self._batches.append(BatchInFlight(scheduled, running))

    def pop(self) -> None:
        """The oldest is settled."""
        self._batches.popleft()

    def clear(self) -> None:
        """Nothing more will be settled."""
        self._batches.clear()
