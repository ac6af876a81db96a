"""First come, first served."""

from typing import Annotated

from pydantic import Field

from enginecore.errors import ConfigurationError
from enginecore.scheduling import RequestView, SchedulerView, SchedulingPolicy, Split


class Fcfs(SchedulingPolicy):
    """First come, first served: decodes, then chunks of prompts.

    The newest request gives way when memory runs out.

    Sarathi-Serve (OSDI 2024) without its fixed step size: a step never takes longer than its token
    budget allows, so a long prompt delays running requests by one chunk at a time. A request that
    lacks memory waits at the head of the queue, and no other one overtakes it.

    Args:
        prefill_chunk_size: Most tokens of one prompt in a step; None: whatever the budget leaves. A
            cap leaves room in the step for prompts that arrive behind a long one.
    """

    def __init__(self, prefill_chunk_size: Annotated[int, Field(ge=1, strict=True)] | None = None) -> None:
        self._chunk = prefill_chunk_size

    def start(self, scheduler: SchedulerView) -> None:
        if self._chunk is not None and not scheduler.enable_chunked_prefill:
            raise ConfigurationError(
                f"scheduler.fcfs.prefill_chunk_size = {self._chunk} has no effect while chunked prefill is off: "
                "leave it out, or set enable_chunked_prefill = true (a model that is not causal cannot have it)"
            )
        if self._chunk is not None and self._chunk > scheduler.max_num_batched_tokens:
            raise ConfigurationError(
                f"scheduler.fcfs.prefill_chunk_size = {self._chunk} is above max_num_batched_tokens = "
                f"{scheduler.max_num_batched_tokens}: a chunk would never fit into a step; lower it or raise the budget"
            )

    def rank(self, request: RequestView, scheduler: SchedulerView) -> float:
        return request.arrival

    def split(self, scheduler: SchedulerView) -> Split:
        budget = scheduler.max_num_batched_tokens
        return Split(prefill=budget, chunk=self._chunk or budget, admit=budget)
