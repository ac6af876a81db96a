"""Scheduling state of a request: phase, rank, lease, blocks, and what policies see of it."""

import enum
from collections.abc import Hashable

from enginecore.errors import InvariantError
from enginecore.request import Request, RequestStatus
from enginecore.scheduling.policy import Rank

NEVER = 1 << 60


class Phase(enum.IntEnum):
    """Phase of a request. `transitions` draws how it gets from one phase to the next."""

    WAITING = 0  # holds nothing
    PREFILL = 1  # holds seat and blocks; known tokens are left to schedule
    DECODE = 2  # holds seat and blocks; one token a step
    DRAIN = 3  # holds seat and blocks; its last token is in flight
    ENDED = 4


class SchedulingState:
    """Scheduling state of a request, beside its tokens. Fills `RequestView`.

    What never changes is copied from the request: policies read it in their loops.

    Attributes:
        request: The request, with its two cursors.
        phase: Where it stands; changed by `Transitions` alone.
        rank: The policy's last answer; changed by `set_rank` alone.
        order: Sort key in every queue: rank, then arrival number. Kept, since a search reads it
            often.
        lane: Waiting lane of the request.
        since: When it began to wait, or was admitted, in seconds on the engine's clock.
        num_blocks: Blocks that it holds; counted by `RequestBlocks` alone.
        num_slots: Tokens that these blocks hold.
        publish_at: Computed tokens at which its next block is full.
        last: Value of `num_scheduled_tokens` at which all is scheduled: a last token is not
            computed.
        lease_end: Value of `num_scheduled_tokens` at which its lease is over.
        mark: Value of `num_scheduled_tokens` at which a decode needs a look: its blocks are full,
            its lease is over, or all is scheduled.
    """

    __slots__ = (
        "arrival", "deadline", "hints", "lane", "last", "lease_end", "mark", "max_tokens", "num_blocks",
        "num_prompt_tokens", "num_slots", "order", "phase", "priority", "publish_at", "rank", "request", "request_id",
        "seq", "since", "tenant",
    )  # fmt: skip

    def __init__(self, request: Request) -> None:
        self.request = request
        self.request_id, self.seq, self.arrival = request.request_id, request.arrival_number, request.arrival_time
        self.priority, self.tenant, self.deadline, self.hints = (
            request.priority, request.tenant, request.deadline, request.hints,
        )  # fmt: skip
        self.num_prompt_tokens = request.num_prompt_tokens
        self.max_tokens = request.max_total_tokens - request.num_prompt_tokens
        self.phase = Phase.WAITING
        self.set_rank(None)
        self.lane: Hashable = None
        self.since = request.arrival_time
        self.num_blocks = self.num_slots = self.mark = self.publish_at = 0
        self.last = max(request.max_total_tokens - 1, request.num_prompt_tokens)
        self.lease_end = NEVER

    def set_rank(self, rank: Rank) -> None:
        """Change its rank. It must not stand in a ranked list meanwhile."""
        self.rank = rank
        self.order = rank, self.seq

    def begin_lease(self, num_tokens: int | None) -> None:
        """Begin a lease of so many output tokens from now on. None: for ever."""
        request = self.request
        start = max(request.num_scheduled_tokens, request.num_tokens - 1)
        self.lease_end = NEVER if num_tokens is None else start + num_tokens

    def set_mark(self) -> None:
        """Set the mark to whichever of its reasons comes first."""
        self.mark = min(self.num_slots, self.last, self.lease_end)

    @property
    def num_output_tokens(self) -> int:
        return self.request.num_output_tokens

    @property
    def num_attained_tokens(self) -> int:
        request, known = self.request, len(self.request.token_ids)
        in_flight = max(request.num_late_tokens, request.num_scheduled_tokens - known + 1)
        return known - self.num_prompt_tokens + in_flight

    @property
    def num_scheduled_tokens(self) -> int:
        return self.request.num_scheduled_tokens

    @property
    def num_unscheduled_tokens(self) -> int:
        """Known tokens that are not scheduled yet."""
        return self.request.num_tokens - self.request.num_scheduled_tokens

    @property
    def num_preemptions(self) -> int:
        return self.request.num_preemptions

    def check_invariants(self) -> None:
        """Verify that phase, status and cursors go together.

        Raises:
            InvariantError: what does not hold.
        """
        request, is_waiting = self.request, self.phase is Phase.WAITING
        if (request.status is RequestStatus.RUNNING) == is_waiting:
            raise InvariantError(f"status and phase differ: {self!r}")
        if is_waiting and request.num_scheduled_tokens:
            raise InvariantError(f"waiting with {request.num_scheduled_tokens} scheduled tokens: {self!r}")
        if not is_waiting and request.num_late_tokens:
            raise InvariantError(f"running with {request.num_late_tokens} late tokens: {self!r}")

    def __repr__(self) -> str:
        return f"SchedulingState({self.request!r}, {self.phase.name}, rank={self.rank!r})"
