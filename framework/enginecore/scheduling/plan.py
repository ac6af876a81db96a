"""The plan of a step while it is being made: only what changed since the last one."""

from enginecore.messages import BlockIds, NewRequestData, RequestDelta, SchedulerOutput
from enginecore.scheduling.batch import Batch
from enginecore.scheduling.request_state import RequestState


class PlanDraft:
    """Gathers what the workers must hear."""

    def __init__(self) -> None:
        self._new: dict[RequestState, NewRequestData] = {}
        self._grown: dict[RequestState, RequestDelta] = {}
        self._finished: list[str] = []
        self._preempted: list[str] = []

    @property
    def has_news(self) -> bool:
        """Whether workers must hear of requests that are gone."""
        return bool(self._finished or self._preempted)

    def admit(self, state: RequestState, block_ids: BlockIds) -> None:
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

    def grow(self, state: RequestState, block_ids: BlockIds) -> None:
        """It got these blocks for its next token."""
        self._grown[state] = RequestDelta(
            request_id=state.request_id,
            new_block_ids=block_ids,
            num_computed_tokens=state.request.num_scheduled_tokens,
        )

    def remove(self, state: RequestState, *, finished: bool) -> None:
        """It lost its blocks. Workers that have never heard of it are not told."""
        self._grown.pop(state, None)
        if self._new.pop(state, None) is None:
            (self._finished if finished else self._preempted).append(state.request_id)

    def build(self, batch: Batch) -> SchedulerOutput:
        """The plan for this batch, which learns who is new in it; the draft is empty again."""
        batch.newcomers = list(self._new)
        scheduled = dict.fromkeys(batch.sampled_ids[: len(batch.decodes)], 1)
        for piece in batch.pieces:
            scheduled[piece.state.request_id] = piece.num_tokens
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
