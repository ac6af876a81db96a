"""What the scheduler remembers of a request, beside the request itself. It is also what policies see of it."""

import enum
from collections.abc import Hashable, Mapping

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


class RequestState:
    """Fills `RequestView`. Owned by the scheduler.

    Attributes:
        request: The request; its cursors are advanced by the scheduler.
        seq: Its arrival number.
        phase: Where it stands.
        rank: What the policy last said.
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
        "lane", "last", "lease_end", "mark", "num_blocks", "num_slots", "phase", "publish_at", "rank", "request",
        "seq", "since",
    )  # fmt: skip

    def __init__(self, request: Request) -> None:
        self.request = request
        self.seq = request.arrival_number
        self.phase = Phase.WAITING
        self.rank: Rank = None
        self.lane: Hashable = None
        self.since = request.arrival_time
        self.num_blocks = self.num_slots = self.mark = self.publish_at = 0
        self.last = max(request.max_total_tokens - 1, request.num_prompt_tokens)
        self.lease_end = NEVER

    def begin_lease(self, end: int | None) -> None:
        """Ask again when the cursor stands at `end`; None: never."""
        self.lease_end = NEVER if end is None else end

    def set_mark(self) -> None:
        """Look again at whichever comes first."""
        self.mark = min(self.num_slots, self.last, self.lease_end)

    @property
    def order(self) -> tuple[Rank, int]:
        """Sort key among its like."""
        return self.rank, self.seq

    @property
    def request_id(self) -> str:
        return self.request.request_id

    @property
    def arrival(self) -> float:
        return self.request.arrival_time

    @property
    def priority(self) -> float:
        return self.request.priority

    @property
    def tenant(self) -> str:
        return self.request.tenant

    @property
    def deadline(self) -> float | None:
        return self.request.deadline

    @property
    def hints(self) -> Mapping[str, float]:
        return self.request.hints

    @property
    def num_prompt_tokens(self) -> int:
        return self.request.num_prompt_tokens

    @property
    def max_tokens(self) -> int:
        return self.request.max_total_tokens - self.request.num_prompt_tokens

    @property
    def num_output_tokens(self) -> int:
        return self.request.num_output_tokens

    @property
    def num_attained_tokens(self) -> int:
        request = self.request
        return request.num_output_tokens + max(request.num_late_tokens, request.num_sampling_tokens)

    @property
    def num_scheduled_tokens(self) -> int:
        return self.request.num_scheduled_tokens

    @property
    def num_preemptions(self) -> int:
        return self.request.num_preemptions

    def __repr__(self) -> str:
        return f"RequestState({self.request!r}, {self.phase.name}, rank={self.rank!r})"
