"""A submitted step, and the steps in flight."""

from collections import deque
from typing import NamedTuple

from enginecore.scheduling.request_state import RequestState


class Piece(NamedTuple):
    """Known tokens of one request that a step computes.

    Attributes:
        state: Whose.
        num_tokens: How many.
        samples: Whether they reach its last known token, so that a new one comes back.
    """

    state: RequestState
    num_tokens: int
    samples: bool


class Batch:
    """What was put into one step: decodes, one token each, then pieces of prompts.

    Attributes:
        step: Its number.
        decodes: One token each, sampled.
        pieces: Several known tokens each.
        newcomers: Those that are new to the workers, whether or not they have tokens in it.
        sampled_ids: Whose tokens come back, in order of the batch.
        stale: Members that lost their blocks or ended since: the result may not touch their present state.
        unfreed: Requests whose blocks are freed when this step is over (executors that run out of order).
    """

    __slots__ = ("decodes", "newcomers", "pieces", "sampled_ids", "stale", "step", "unfreed")

    def __init__(self, step: int, decodes: list[RequestState], pieces: list[Piece]) -> None:
        self.step = step
        self.decodes = decodes
        self.pieces = pieces
        self.sampled_ids = [state.request.request_id for state in decodes]
        self.sampled_ids += [piece.state.request.request_id for piece in pieces if piece.samples]
        self.newcomers: list[RequestState] = []
        self.stale: set[RequestState] = set()
        self.unfreed: list[RequestState] = []


class BatchesInFlight(deque[Batch]):
    """Submitted steps that have not been answered, oldest first."""

    def mark_stale(self, state: RequestState) -> None:
        """Whatever is in flight of it is of its past."""
        for batch in self:
            batch.stale.add(state)

    @property
    def any_unfreed(self) -> bool:
        """Whether blocks come back when a step in flight is over."""
        return any(batch.unfreed for batch in self)
