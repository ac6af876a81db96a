"""What the scheduler remembers of a request, beside the request itself. It is also what policies see of it."""

import enum
from collections.abc import Hashable

from enginecore.request import Request
from enginecore.scheduling.policy import Rank

NEVER = 1 << 60


class Phase(enum.IntEnum):
    """Where a request stands in the mechanism."""

    WAITING = 0
    PREFILL = 1  # holds seat and blocks; known tokens are left to schedule
    DECODE = 2  # holds seat and blocks; one token a step
    DRAIN = 3  # holds seat and blocks; its last token is in flight
    ENDED = 4


class SchedulingState:
    """Fills `RequestView`. Owned by the scheduler. What never changes is copied: policies read it in their loops.

    Attributes:
        request: The request; its cursors are advanced by the scheduler.
        phase: Where it stands.
        rank: What the policy last said; changed by `set_rank` alone.
        order: Sort key among its like: rank, then arrival number. Kept, since a search reads it many times.
        lane: Which waiting lane it stands in.
        since: When it entered its phase (waiting, or running).
        num_blocks: Blocks that it holds.
        num_slots: Tokens that these blocks hold.
        last: Cursor value at which everything is scheduled: the last token of a request is never computed.
        lease_end: Cursor value at which its lease is over.
        mark: Cursor value at which a decode needs a look: a full block, the end of its lease, or all scheduled.
        publish_at: Computed tokens at which its next block is full.
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
        """Whoever holds it in order takes it out before, and puts it back after."""
        self.rank = rank
        self.order = rank, self.seq

    def begin_lease(self, end: int | None) -> None:
        """Ask again when the cursor stands at `end`; None: never."""
        self.lease_end = NEVER if end is None else end

    def set_mark(self) -> None:
        """Look again at whichever comes first."""
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
    def num_preemptions(self) -> int:
        return self.request.num_preemptions

    def __repr__(self) -> str:
        return f"SchedulingState({self.request!r}, {self.phase.name}, rank={self.rank!r})"
