"""One step: what it computes, and what workers are told with it."""

from typing import NamedTuple

from enginecore.messages import BlockIds, NewRequestData, RequestDelta, SchedulerOutput
from enginecore.request import Request


class Row(NamedTuple):
    """What a step computes of one request.

    Attributes:
        request: Whose.
        num_tokens: How many.
        samples: Whether a new token comes back: the step computes the last known token, or one past it.
        life: `num_preemptions` at that time. If it has grown since, the blocks that were written are no longer its own.
    """

    request: Request
    num_tokens: int
    samples: bool
    life: int


class Step:
    """Made when the step before it is planned, so that whoever goes meanwhile is noted in it.

    Attributes:
        plan: For the workers.
        rows: One per scheduled request.
        room: Tokens that it can still take.
    """

    def __init__(self, number: int, room: int) -> None:
        self.plan = SchedulerOutput(step=number)
        self.rows: list[Row] = []
        self.room = room

    def introduce(self, request: Request, block_ids: BlockIds) -> None:
        """It is new to the workers; its cursors stand where the cached prefix ends."""
        self.plan.new_requests.append(
            NewRequestData(
                request_id=request.request_id,
                token_ids=list(request.token_ids),
                num_prompt_tokens=request.num_prompt_tokens,
                params=request.params,
                block_ids=block_ids,
                num_computed_tokens=request.num_computed_tokens,
                resumed=request.num_preemptions > 0,
                cache_salt=request.cache_salt,
                adapter=request.adapter,
            )
        )

    def grow(self, request: Request, block_ids: BlockIds) -> None:
        """It got these blocks for the tokens that come next."""
        self.plan.deltas.append(
            RequestDelta(
                request_id=request.request_id,
                new_block_ids=block_ids,
                num_computed_tokens=request.num_scheduled_tokens,
            )
        )

    def compute(self, request: Request, num_tokens: int) -> None:
        """Take these tokens of it in."""
        self.room -= num_tokens
        self.plan.num_scheduled_tokens[request.request_id] = num_tokens
        request.num_scheduled_tokens += num_tokens
        samples = request.num_scheduled_tokens >= request.num_tokens
        self.rows.append(Row(request, num_tokens, samples, request.num_preemptions))
