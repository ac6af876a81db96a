"""Bugs that make wrong tokens."""

import dataclasses
from typing import Any, ClassVar

import msgspec

from tests.conformance.executors.mutants.base import Executor


def is_decode(scheduled):
    return not scheduled.new_requests and set(scheduled.num_scheduled_tokens.values()) == {1}


class RemembersRuns(Executor):
    """Something that is not cleared between requests."""

    caught_by = "greedy_tokens_repeat"
    num_new = 0

    def output(self, scheduled, output):
        self.num_new += len(scheduled.new_requests)
        if self.num_new % 3 == 0 and output.request_ids:
            self.spoil(output, output.request_ids[0])
        return output


class LargeBatchesDiffer(Executor):
    caught_by = "company_changes_nothing"

    def output(self, scheduled, output):
        if len(scheduled.num_scheduled_tokens) >= 4:
            self.spoil(output, output.request_ids[-1])
        return output


class ChunksDiffer(Executor):
    """The last chunk of a prompt does not see the one before it."""

    caught_by = "chunks_change_nothing"

    def output(self, scheduled, output):
        for request_id in output.request_ids:
            row, count = self.rows[request_id], scheduled.num_scheduled_tokens[request_id]
            if 1 < count < row.num_prompt_tokens == row.num_computed_tokens:
                self.spoil(output, request_id)
        return output


class HalvesThePool(Executor):
    """A block table of too few bits."""

    caught_by = "names_of_blocks_change_nothing"

    def plan(self, scheduled):
        plan = msgspec.convert(msgspec.to_builtins(scheduled), type(scheduled))
        for new in plan.new_requests:
            new.block_ids = ([block % 32 for block in new.block_ids[0]],)
        for delta in plan.deltas:
            delta.new_block_ids = ([block % 32 for block in delta.new_block_ids[0]],)
        return plan


class SpillsIntoTheNextBlock(Executor):
    caught_by = "a_request_writes_to_its_own_slots_only"

    def output(self, scheduled, output):
        for request_id in scheduled.num_scheduled_tokens:
            row = self.rows[request_id]
            last = row.block_ids[(row.num_computed_tokens - 1) // self.context.block_size]
            if last + 1 < len(self.blocks) and last + 1 not in row.block_ids:
                self.blocks[last + 1][0] = 5
        return output


class PadsInBlockZero(Executor):
    """Batches are filled up with rows that write somewhere."""

    caught_by = "a_request_writes_to_its_own_slots_only"

    def output(self, scheduled, output):
        if is_decode(scheduled) and len(scheduled.num_scheduled_tokens) % 2:
            if not any(0 in self.rows[request_id].block_ids for request_id in scheduled.num_scheduled_tokens):
                self.blocks[0][1] = 5
        return output


class ScrubsBlocks(Executor):
    """Clears what a request had, whoever shares it."""

    caught_by = "a_computed_prefix_may_be_shared"

    def plan(self, scheduled):
        for request_id in scheduled.finished_ids:
            for block in self.rows[request_id].block_ids:
                self.blocks[block][0] = 5
        return scheduled


class SharesTooMuch(Executor):
    """Takes the block behind a shared prefix for shared, too."""

    caught_by = "a_computed_prefix_may_be_shared"

    def output(self, scheduled, output):
        for new in scheduled.new_requests:
            if new.num_computed_tokens and new.request_id in output.request_ids:
                self.spoil(output, new.request_id)
        return output


class ForgetsTheOutput(Executor):
    """A request that comes back is taken for a new one."""

    caught_by = "a_preempted_request_goes_on_where_it_stood"

    def plan(self, scheduled):
        plan = msgspec.convert(msgspec.to_builtins(scheduled), type(scheduled))
        for new in plan.new_requests:
            if new.resumed and len(new.token_ids) > new.num_prompt_tokens:
                del new.token_ids[-1]
                plan.num_scheduled_tokens[new.request_id] -= 1
        return plan


class WritesTwice(Executor):
    """What a step has written it writes once more after the next one."""

    caught_by = "blocks_may_be_given_away_at_once"

    def __init__(self, settings, context):
        super().__init__(settings, context)
        self.written: dict[int, list[int]] = {}

    def output(self, scheduled, output):
        now = {}
        for request_id in scheduled.num_scheduled_tokens:
            now.update({block: list(self.blocks[block]) for block in self.rows[request_id].block_ids})
        gone = {*scheduled.finished_ids, *scheduled.preempted_ids}
        for block, content in self.written.items():
            if gone and block in now:
                self.blocks[block][:] = type(self.blocks[block])("q", content)
        self.written = now
        return output


class OneGeneratorForAll(Executor):
    """Random numbers are drawn by row."""

    caught_by = "seeds_repeat"

    def output(self, scheduled, output):
        for request_id in output.request_ids[1:]:
            if not self.rows[request_id].params.greedy:
                self.spoil(output, request_id)
        return output


class Params(Executor):
    """Takes a request's parameters for others."""

    def changed(self, params):
        raise NotImplementedError

    def plan(self, scheduled):
        plan = msgspec.convert(msgspec.to_builtins(scheduled), type(scheduled))
        for new in plan.new_requests:
            new.params = self.changed(new.params)
        return plan


class IgnoresTheSeed(Params):
    caught_by = "seeds_make_a_difference"

    def changed(self, params):
        return msgspec.structs.replace(params, seed=0)


class GreedyIsNearlyGreedy(Params):
    caught_by = "greedy_ignores_the_seed"

    def changed(self, params):
        return msgspec.structs.replace(params, temperature=max(params.temperature, 0.01))


class IgnoresMinTokens(Params):
    caught_by = "min_tokens_keeps_the_end_away"

    def changed(self, params):
        return msgspec.structs.replace(params, min_tokens=0)


class BansStopTokensForEver(Params):
    caught_by = "min_tokens_keeps_the_end_away"

    def changed(self, params):
        return msgspec.structs.replace(params, min_tokens=min(50, params.max_tokens or 50))


class LogprobsForAll(Params):
    caught_by = "logprobs_come_when_they_are_asked_for"

    def changed(self, params):
        return msgspec.structs.replace(params, logprobs=params.logprobs or 3)


class LogprobsWithoutTheSampled(Executor):
    caught_by = "logprobs_come_when_they_are_asked_for"

    def output(self, scheduled, output):
        for entries in output.logprobs.values():
            entries[0].token_ids = entries[0].token_ids[1:]
        return output


class FeedsAPlaceholder(Executor):
    """The next step is computed before the token of this one is there."""

    caught_by = "sampled_tokens_are_fed_to_the_next_step"

    def output(self, scheduled, output):
        if self.inner._in_flight:
            for request_id in output.request_ids:
                self.rows[request_id].token_ids[-1] = 0
        return output


class WritesLate(Executor):
    """Runs ahead, and says that it runs in order."""

    caught_by = "blocks_may_be_given_away_with_steps_in_flight"
    oracle: ClassVar[Any] = {"in_order": False}

    @property
    def capabilities(self):
        return dataclasses.replace(self.inner.capabilities, in_order=True)
