"""Settlement of a step that has returned: tokens are accepted, blocks published, requests ended."""

import logging
from collections.abc import Sequence
from typing import TypeGuard

from enginecore.errors import InvariantError
from enginecore.messages import EngineCoreOutput, FinishReason, ModelRunnerOutput, PositionLogprobs, SchedulerOutput
from enginecore.scheduling.blocks import RequestBlocks
from enginecore.scheduling.state import Phase, SchedulingState
from enginecore.scheduling.step import Batch, Outbox, StepsInFlight
from enginecore.scheduling.transitions import Transitions

logger = logging.getLogger(__name__)

Tokens = list[int] | None


class Settlement:
    """Applies results of steps, in order: publishes blocks, accepts tokens, ends requests."""

    def __init__(
        self, in_flight: StepsInFlight, blocks: RequestBlocks, transitions: Transitions, outbox: Outbox
    ) -> None:
        self._in_flight = in_flight
        self._blocks = blocks
        self._transitions = transitions
        self._outbox = outbox

    def settle_step(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> None:
        """Apply the result of the oldest step in flight; outputs go to the outbox.

        Raises:
            InvariantError: this is not the oldest step in flight.
        """
        batch = self._take_oldest(scheduled, output)
        self._blocks.step_returned(batch.step)
        if output.errors:
            self._fail(output.errors, batch)
        tokens = self._sampled_tokens(batch, output)
        self._settle_decodes(batch, tokens, output.logprobs)
        if batch.chunks:
            self._settle_chunks(batch, tokens[len(batch.decodes) :], output.logprobs)

    def _take_oldest(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> Batch:
        in_flight = self._in_flight
        if not in_flight or not in_flight[0].step == scheduled.step == output.step:
            raise InvariantError(
                f"results come in order, each once: plan of step {scheduled.step}, result of step {output.step}, "
                f"in flight {[batch.step for batch in in_flight]}"
            )
        return in_flight.popleft()

    @staticmethod
    def _sampled_tokens(batch: Batch, output: ModelRunnerOutput) -> Sequence[Tokens]:
        """Tokens in order of the batch; None for a row that the executor left out."""
        if output.request_ids == batch.sampled_ids and len(output.sampled_token_ids) == len(batch.sampled_ids):
            return output.sampled_token_ids
        by_id: dict[str, list[int]] = {}
        for request_id, tokens in zip(output.request_ids, output.sampled_token_ids, strict=False):
            # a second row makes one token too many
            by_id[request_id] = by_id.get(request_id, []) + tokens
        rows: list[Tokens] = [by_id.pop(request_id, None) for request_id in batch.sampled_ids]
        for chunk in batch.chunks:
            by_id.pop(chunk.state.request_id, None)
        if by_id:
            logger.error("step %d gave results for requests that it did not hold: %s", batch.step, sorted(by_id))
        return rows

    def _fail(self, errors: dict[str, str], batch: Batch) -> None:
        """End requests for which the executor reports an error."""
        states = (*batch.decodes, *(chunk.state for chunk in batch.chunks), *batch.newcomers)
        members = {state.request_id: state for state in states}
        for request_id, error in errors.items():
            state = members.get(request_id)
            if state is None:
                logger.error("step %d gave an error for %r, which it did not hold: %s", batch.step, request_id, error)
            elif state.phase is not Phase.ENDED:
                self._transitions.fail(state, error)
                batch.stale.add(state)

    # -- rows --------------------------------------------------------------------------------------

    def _settle_decodes(
        self, batch: Batch, tokens: Sequence[Tokens], logprobs: dict[str, list[PositionLogprobs]]
    ) -> None:
        """Settle decodes. The hot loop: once per running request and step."""
        stale, outbox = batch.stale, self._outbox
        client: int | None = None
        due: list[EngineCoreOutput] = []
        for state, sampled in zip(batch.decodes, tokens, strict=False):
            if (stale and state in stale) or sampled is None or len(sampled) != 1:
                self._accept_odd(state, sampled, state in stale, logprobs)
                continue
            request = state.request
            request.num_computed_tokens += 1
            accepted = request.append(sampled)
            output = EngineCoreOutput(request.request_id, accepted)
            if request.client_index != client:
                client, due = request.client_index, outbox.due_to(request.client_index)
            due.append(output)
            if logprobs:
                output.logprobs = logprobs.get(request.request_id)
            if request.num_computed_tokens >= state.publish_at:
                self._blocks.publish(state)
            if request.finish_reason is not None:
                self._end(state, output)

    def _settle_chunks(
        self, batch: Batch, tokens: Sequence[Tokens], logprobs: dict[str, list[PositionLogprobs]]
    ) -> None:
        rows = iter(tokens)
        for state, num_tokens, samples in batch.chunks:
            is_stale = state in batch.stale
            sampled = next(rows, None) if samples else None
            if not is_stale:
                state.request.num_computed_tokens += num_tokens
                # without its token the blocks may not have been written
                if not samples or _is_one(sampled):
                    self._blocks.publish(state)
            if samples:
                self._accept(state, sampled, is_stale, logprobs)

    def _accept_odd(
        self, state: SchedulingState, sampled: Tokens, is_stale: bool, logprobs: dict[str, list[PositionLogprobs]]
    ) -> None:
        """Settle a decode whose result is late, missing or of the wrong length."""
        if not is_stale:
            state.request.num_computed_tokens += 1
        self._accept(state, sampled, is_stale, logprobs)

    def _accept(
        self, state: SchedulingState, sampled: Tokens, is_stale: bool, logprobs: dict[str, list[PositionLogprobs]]
    ) -> None:
        """Accept a sampled token. A request that has ended drops it, a preempted one keeps it."""
        request = state.request
        if state.phase is Phase.ENDED:
            return
        if not _is_one(sampled):
            given = "no row" if sampled is None else f"{len(sampled)} tokens"
            self._transitions.fail(state, f"the executor returned {given} for a request that was to give 1 token")
            return
        if is_stale:
            request.num_late_tokens -= 1
        is_first = not request.num_output_tokens
        output = EngineCoreOutput(request.request_id, request.append(sampled))
        if is_first:
            output.num_cached_tokens = request.num_cached_tokens
        if logprobs:
            output.logprobs = logprobs.get(request.request_id)
        self._outbox.add(request.client_index, output)
        if request.finish_reason is not None:
            self._end(state, output)

    def _end(self, state: SchedulingState, output: EngineCoreOutput) -> None:
        request = state.request
        reason = request.finish_reason
        if reason is None:
            raise InvariantError(f"{state!r} has no reason to end")
        output.finish_reason, output.stop_reason = reason, request.stop_reason
        self._transitions.finish(state, FinishReason(reason))


def _is_one(sampled: Tokens) -> TypeGuard[list[int]]:
    """Whether a row holds what it was to hold, one token."""
    return sampled is not None and len(sampled) == 1
