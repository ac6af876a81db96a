"""A step: the plan that workers get, the batch that is in flight, the outputs that clients get."""

from collections import deque
from typing import NamedTuple

from enginecore.interfaces import Outputs
from enginecore.messages import (
    BlockIds,
    EngineCoreOutput,
    FinishReason,
    NewRequestData,
    RequestDelta,
    SchedulerOutput,
)
from enginecore.request import Request
from enginecore.scheduling.state import SchedulingState


class Chunk(NamedTuple):
    """Known tokens of one request that a step computes.

    Attributes:
        state: Whose.
        num_tokens: How many.
        samples: Whether they reach its last known token, so that a new one comes back.
    """

    state: SchedulingState
    num_tokens: int
    samples: bool


class Batch:
    """What was put into one step: decodes, one token each, then chunks of prompts.

    Attributes:
        step: Its number.
        decodes: One token each, sampled.
        chunks: Several known tokens each.
        newcomers: Those that are new to the workers, whether or not they have tokens in it.
        sampled_ids: Whose tokens come back, in order of the batch.
        stale: Members that lost their blocks or ended since: the result may not touch their present state.
        unfreed: Requests whose blocks are freed when this step is over (executors that run out of order).
    """

    __slots__ = ("chunks", "decodes", "newcomers", "sampled_ids", "stale", "step", "unfreed")

    def __init__(self, step: int, decodes: list[SchedulingState], chunks: list[Chunk]) -> None:
        self.step = step
        self.decodes = decodes
        self.chunks = chunks
        self.sampled_ids = [state.request.request_id for state in decodes]
        self.sampled_ids += [chunk.state.request.request_id for chunk in chunks if chunk.samples]
        self.newcomers: list[SchedulingState] = []
        self.stale: set[SchedulingState] = set()
        self.unfreed: list[SchedulingState] = []


class StepsInFlight(deque[Batch]):
    """Submitted steps that have not been answered, oldest first."""

    def mark_stale(self, state: SchedulingState) -> None:
        """Whatever is in flight of it is of its past."""
        for batch in self:
            batch.stale.add(state)

    @property
    def any_unfreed(self) -> bool:
        """Whether blocks come back when a step in flight is over."""
        return any(batch.unfreed for batch in self)


class PlanDraft:
    """Gathers what the workers must hear."""

    def __init__(self) -> None:
        self._new: dict[SchedulingState, NewRequestData] = {}
        self._grown: dict[SchedulingState, RequestDelta] = {}
        self._finished: list[str] = []
        self._preempted: list[str] = []

    @property
    def has_news(self) -> bool:
        """Whether workers must hear of requests that are gone."""
        return bool(self._finished or self._preempted)

    def admit(self, state: SchedulingState, block_ids: BlockIds) -> None:
        """It is new to the workers, with these blocks; its cursors stand where the cached prefix ends."""
        request = state.request
        self._new[state] = NewRequestData(
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

    def grow(self, state: SchedulingState, block_ids: BlockIds) -> None:
        """It got these blocks for its next token."""
        self._grown[state] = RequestDelta(
            request_id=state.request_id,
            new_block_ids=block_ids,
            num_computed_tokens=state.request.num_scheduled_tokens,
        )

    def remove(self, state: SchedulingState, *, finished: bool) -> None:
        """It lost its blocks. Workers that have never heard of it are not told."""
        self._grown.pop(state, None)
        if self._new.pop(state, None) is None:
            (self._finished if finished else self._preempted).append(state.request_id)

    def build(self, batch: Batch) -> SchedulerOutput:
        """The plan for this batch, which learns who is new in it; the draft is empty again."""
        batch.newcomers = list(self._new)
        scheduled = dict.fromkeys(batch.sampled_ids[: len(batch.decodes)], 1)
        for chunk in batch.chunks:
            scheduled[chunk.state.request_id] = chunk.num_tokens
        plan = SchedulerOutput(
            step=batch.step,
            num_scheduled_tokens=scheduled,
            new_requests=list(self._new.values()),
            deltas=list(self._grown.values()),
            finished_ids=self._finished,
            preempted_ids=self._preempted,
        )
        self._new, self._grown, self._finished, self._preempted = {}, {}, [], []
        return plan


class Outbox:
    """Collects outputs until they are taken; each is given once."""

    def __init__(self) -> None:
        self._due: dict[int, list[EngineCoreOutput]] = {}

    def __bool__(self) -> bool:
        return bool(self._due)

    def due_to(self, client_index: int) -> list[EngineCoreOutput]:
        """What is due to a client; whoever has many to add adds them here."""
        return self._due.setdefault(client_index, [])

    def add(self, client_index: int, output: EngineCoreOutput) -> None:
        """Put one in."""
        self.due_to(client_index).append(output)

    def add_terminal(self, request: Request, reason: FinishReason, error: str | None = None) -> None:
        """Put in the last output of a request that ends without a token."""
        self.add(request.client_index, EngineCoreOutput(request.request_id, [], reason, error=error))

    def take(self) -> Outputs:
        """All that is due."""
        due, self._due = self._due, {}
        return due
