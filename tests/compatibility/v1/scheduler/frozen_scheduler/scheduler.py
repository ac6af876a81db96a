"""The scheduler. Two rules keep it short:

- Whoever runs arrived before whoever waits, and both lists stand in order of arrival. So the victim is the last that
  runs, and goes back to the head of the queue.
- A step goes through those that run from the oldest on. Whoever is preempted on the way is younger than all that have
  got tokens in this step, so nothing that was given out is ever taken back.
"""

from collections import deque
from collections.abc import Collection, Iterable
from typing import Any

from enginecore.errors import InvalidRequestError, InvariantError
from enginecore.interfaces import CachedPrefix, Outputs, Scheduler
from enginecore.messages import (
    BlockIds,
    EngineCoreOutput,
    FinishReason,
    ModelRunnerOutput,
    PositionLogprobs,
    SchedulerOutput,
    SchedulerStats,
)
from enginecore.plugin import SchedulerContext
from enginecore.request import Request, RequestStatus
from frozen_scheduler.step import Row, Step


class FrozenScheduler(Scheduler):
    """First come, first served, with nothing of `enginecore.scheduling`."""

    def __init__(self, context: SchedulerContext, reserved_blocks: int) -> None:
        self._reserved_blocks = reserved_blocks
        self._limits = context
        self._kv = context.kv_cache_manager
        self._requests: dict[str, Request] = {}  # all that have not ended, in order of arrival
        self._running: list[Request] = []
        self._waiting: deque[Request] = deque()
        self._step = Step(0, context.max_num_batched_tokens)  # the next one
        self._in_flight: deque[Step] = deque()
        self._outputs: dict[int, list[EngineCoreOutput]] = {}
        self._num_preemptions = 0

    def add_request(self, request: Request) -> None:
        if request.request_id in self._requests:
            raise InvalidRequestError(f"request_id {request.request_id!r} belongs to a request that has not ended")
        capacity = self._kv.num_blocks * self._kv.block_size
        if request.num_prompt_tokens > capacity:
            error = f"the prompt has {request.num_prompt_tokens} tokens, and the KV cache holds {capacity}"
            self._tell(request, finish_reason=FinishReason.ERROR, error=error)
            return
        request.max_total_tokens = min(request.max_total_tokens, capacity + 1)  # the last token needs no slot
        self._requests[request.request_id] = request
        self._waiting.append(request)

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            if request := self._requests.get(request_id):
                self._end(request, FinishReason.ABORT)

    def finish_requests(self, request_ids: Iterable[str], reason: FinishReason, error: str | None = None) -> None:
        for request_id in request_ids:
            if request := self._requests.get(request_id):
                self._tell(request, finish_reason=reason, error=error)
                self._end(request, reason)

    def _tell(self, request: Request, tokens: Iterable[int] = (), **news: Any) -> None:
        output = EngineCoreOutput(request.request_id, list(tokens), **news)
        self._outputs.setdefault(request.client_index, []).append(output)

    def _end(self, request: Request, reason: FinishReason) -> None:
        """It is over, wherever it stands. Whatever is in flight of it will be dropped."""
        if request.status is RequestStatus.RUNNING:
            self._running.remove(request)
            self._kv.free(request)
            self._step.plan.finished_ids.append(request.request_id)
        else:
            self._waiting.remove(request)
        request.status, request.finish_reason = RequestStatus.FINISHED, reason
        del self._requests[request.request_id]

    def _preempt_youngest(self) -> Request:
        """Take the blocks of the last that runs. A token of its that is in flight still arrives, late."""
        request = self._running.pop()
        self._kv.free(request)
        self._step.plan.preempted_ids.append(request.request_id)
        request.preempt()
        request.status = RequestStatus.WAITING
        self._waiting.appendleft(request)
        self._num_preemptions += 1
        return request

    def schedule(self) -> SchedulerOutput:
        self._serve_running()
        if not self._step.plan.preempted_ids:  # too tight for those who run is too tight for others
            self._admit_waiting()
        step, self._step = self._step, Step(self._step.plan.step + 1, self._limits.max_num_batched_tokens)
        if not step.plan.is_empty:
            self._in_flight.append(step)
        return step.plan

    def _serve_running(self) -> None:
        """Tokens for those who run, oldest first, decodes and pieces of prompts alike."""
        executor, most = self._limits.executor, len(self._running)
        if not executor.feeds_tokens:  # who waits for a token sits out, so the batches in flight share the others
            most = -(-most // executor.max_concurrent_batches)
        for request in self._running:  # it loses its last ones meanwhile: those are not come to
            num_tokens = self._num_tokens_to_compute(request)
            if num_tokens and len(self._step.rows) < most and self._grow(request, num_tokens):
                self._step.compute(request, num_tokens)

    def _admit_waiting(self) -> None:
        """Seats, and blocks for all known tokens at once, in order of arrival; nobody overtakes the first."""
        while self._waiting and len(self._running) < self._limits.max_num_seqs:
            request = self._waiting[0]
            if request.num_late_tokens:  # they are part of what it must compute
                return
            prefix = self._kv.get_computed_blocks(request)
            num_tokens = self._num_tokens_to_compute(request, prefix.num_tokens)
            block_ids = self._allocate(request, prefix) if num_tokens else None
            if block_ids is None:
                return
            self._running.append(self._waiting.popleft())
            request.status = RequestStatus.RUNNING
            request.num_scheduled_tokens = request.num_computed_tokens = prefix.num_tokens
            if request.num_cached_tokens < 0:
                request.num_cached_tokens = prefix.num_tokens
            self._step.introduce(request, block_ids)
            self._step.compute(request, num_tokens)

    def _allocate(self, request: Request, prefix: CachedPrefix) -> BlockIds | None:
        """Blocks for a waiting request, if they leave the reserve of those who run."""
        reserved = self._reserved_blocks if self._running else 0
        need = self._kv.num_blocks_to_allocate(request, request.num_tokens, prefix)
        if self._kv.num_free_blocks - need < reserved:
            return None
        return self._kv.allocate_slots(request, request.num_tokens, prefix)

    def _num_tokens_to_compute(self, request: Request, start: int | None = None) -> int:
        """From `start` on, which is where it stands: what is known, or a token that the executor feeds. 0: not now."""
        start = request.num_scheduled_tokens if start is None else start
        num_tokens = request.num_tokens - start
        if num_tokens <= 0:
            end = max(request.max_total_tokens - 1, request.num_prompt_tokens)  # the last token is never computed
            num_tokens = 1 if self._limits.executor.feeds_tokens and start < end else 0
        if num_tokens > self._step.room:
            return self._step.room if self._limits.enable_chunked_prefill else 0
        return num_tokens

    def _grow(self, request: Request, num_tokens: int) -> bool:
        """Slots for these tokens, if need be somebody else's. False: it had to give up its own."""
        while (block_ids := self._kv.allocate_slots(request, request.num_scheduled_tokens + num_tokens)) is None:
            if self._preempt_youngest() is request:
                return False
        if block_ids[0]:
            self._step.grow(request, block_ids)
        return True

    def update_from_output(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> Outputs:
        due = self._in_flight[0].plan.step if self._in_flight else None
        if not due == scheduled.step == output.step:
            raise InvariantError(f"plan of step {scheduled.step}, result of step {output.step}, but {due} is due")
        tokens: dict[str, list[int]] = {}
        for request_id, sampled in zip(output.request_ids, output.sampled_token_ids, strict=False):
            tokens[request_id] = tokens.get(request_id, []) + sampled  # a second row makes one token too many
        for row in self._in_flight.popleft().rows:
            if not row.request.is_finished:
                self._settle(row, tokens.get(row.request.request_id, []), output)
        return self.take_outputs()

    def _settle(self, row: Row, sampled: list[int], output: ModelRunnerOutput) -> None:
        request = row.request
        error = output.errors.get(request.request_id)
        if error is None and row.samples and len(sampled) != 1:
            error = f"the executor returned {len(sampled)} tokens for a request that was to give 1"
        if error is not None:
            self.finish_requests([request.request_id], FinishReason.ERROR, error)
            return
        if row.life == request.num_preemptions:
            request.num_computed_tokens += row.num_tokens
            self._kv.cache_blocks(request, request.num_computed_tokens)
        elif row.samples:
            request.num_late_tokens -= 1
        if row.samples:
            self._accept(request, sampled, output.logprobs.get(request.request_id))

    def _accept(self, request: Request, sampled: list[int], logprobs: list[PositionLogprobs] | None) -> None:
        num_cached_tokens = 0 if request.num_output_tokens else request.num_cached_tokens
        accepted, reason = request.append(sampled), request.finish_reason
        self._tell(
            request,
            accepted,
            finish_reason=reason,
            stop_reason=request.stop_reason,
            logprobs=logprobs,
            num_cached_tokens=num_cached_tokens,
        )
        if reason is not None:
            self._end(request, reason)

    def take_outputs(self) -> Outputs:
        outputs, self._outputs = self._outputs, {}
        return outputs

    @property
    def has_outputs(self) -> bool:
        return bool(self._outputs)

    def has_requests(self) -> bool:
        return bool(self._requests or self._in_flight or self._outputs or not self._step.plan.is_empty)

    @property
    def unfinished_requests(self) -> Collection[Request]:
        return self._requests.values()

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        while reset_running_requests and self._running:
            self._preempt_youngest()
        return self._kv.reset_prefix_cache()

    def get_stats(self) -> SchedulerStats:
        cache = self._kv.get_stats()
        return SchedulerStats(
            step=self._step.plan.step,
            num_running=len(self._running),
            num_waiting=len(self._waiting),
            num_preemptions=self._num_preemptions,
            num_blocks=cache.num_blocks,
            num_free_blocks=cache.num_free_blocks,
            num_cached_blocks=cache.num_cached_blocks,
            prefix_cache_queries=cache.queries,
            prefix_cache_hits=cache.hits,
        )

    def check_invariants(self) -> None:
        self._kv.check_invariants()
        if [*self._running, *self._waiting] != list(self._requests.values()):
            raise InvariantError("those who run, then those who wait, are not the requests in order of arrival")
        for request in self._requests.values():
            (block_ids,) = self._kv.get_block_ids(request)
            if request.num_scheduled_tokens > len(block_ids) * self._kv.block_size:
                raise InvariantError(f"{request!r} has slots in {len(block_ids)} blocks only")
            if (request.status is RequestStatus.RUNNING) != bool(block_ids):
                raise InvariantError(f"{request!r} holds {len(block_ids)} blocks")
