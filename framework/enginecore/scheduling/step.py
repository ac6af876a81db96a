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
        state: The request.
        num_tokens: How many tokens, at least 1.
        samples: Whether they reach its last known token, so that a new one is sampled.
    """

    state: SchedulingState
    num_tokens: int
    samples: bool


class Batch:
    """The requests of one step: decodes first, then chunks of known tokens.

    Attributes:
        step: Number of the step.
        decodes: Requests with one token each, which is sampled.
        chunks: Requests with several known tokens each.
        newcomers: Requests that the plan names as new, with tokens in it or without.
        sampled_ids: Ids of the requests that are sampled, in order of the batch.
        stale: Requests that were preempted or ended since: the result is of their past.
    """

    __slots__ = ("chunks", "decodes", "newcomers", "sampled_ids", "stale", "step")

    def __init__(self, step: int, decodes: list[SchedulingState], chunks: list[Chunk]) -> None:
        self.step = step
        self.decodes = decodes
        self.chunks = chunks
        self.sampled_ids = [state.request.request_id for state in decodes]
        self.sampled_ids += [chunk.state.request.request_id for chunk in chunks if chunk.samples]
        self.newcomers: list[SchedulingState] = []
        self.stale: set[SchedulingState] = set()


class StepsInFlight(deque[Batch]):
    """Batches that were submitted and have not returned, oldest first."""

    def mark_stale(self, state: SchedulingState) -> None:
        """Take all that is in flight of a request for a part of its past."""
        for batch in self:
            batch.stale.add(state)


class PlanDraft:
    """The next plan while it is drawn up: what has changed since the last one."""

    def __init__(self) -> None:
        self._new: dict[SchedulingState, NewRequestData] = {}
        self._grown: dict[SchedulingState, RequestDelta] = {}
        self._finished: list[str] = []
        self._preempted: list[str] = []

    @property
    def names_gone(self) -> bool:
        """Whether it names requests that workers must forget."""
        return bool(self._finished or self._preempted)

    def admit(self, state: SchedulingState, block_ids: BlockIds) -> None:
        """Name a request as new, with all its blocks; its cursors stand behind its prefix."""
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
        """Add blocks to a request that workers know, for its next token."""
        self._grown[state] = RequestDelta(
            request_id=state.request_id,
            new_block_ids=block_ids,
            num_computed_tokens=state.request.num_scheduled_tokens,
        )

    def preempt(self, state: SchedulingState) -> None:
        """Name a request as preempted, if workers know it."""
        if self._is_known(state):
            self._preempted.append(state.request_id)

    def finish(self, state: SchedulingState) -> None:
        """Name a request as ended, if workers know it."""
        if self._is_known(state):
            self._finished.append(state.request_id)

    def _is_known(self, state: SchedulingState) -> bool:
        """Drop what the draft says of a request. Returns whether workers know the request."""
        self._grown.pop(state, None)
        return self._new.pop(state, None) is None

    def build(self, batch: Batch) -> SchedulerOutput:
        """The plan of this batch, in which its newcomers are noted. The draft is empty again."""
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
    """Outputs that are due, by client index. Each is given once."""

    def __init__(self) -> None:
        self._due: dict[int, list[EngineCoreOutput]] = {}

    def __bool__(self) -> bool:
        return bool(self._due)

    def due_to(self, client_index: int) -> list[EngineCoreOutput]:
        """The list of outputs for a client, to add to."""
        return self._due.setdefault(client_index, [])

    def add(self, client_index: int, output: EngineCoreOutput) -> None:
        """Add one output for a client."""
        self.due_to(client_index).append(output)

    def add_terminal(self, request: Request, reason: FinishReason, error: str | None = None) -> None:
        """Add the last output of a request that ends without a token."""
        self.add(request.client_index, EngineCoreOutput(request.request_id, [], reason, error=error))

    def take(self) -> Outputs:
        """All that is due."""
        due, self._due = self._due, {}
        return due
