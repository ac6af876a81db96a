"""Bugs in what an executor says about itself, and in who is answered."""

import dataclasses
from concurrent.futures import Future
from typing import Any

import msgspec

from enginecore.interfaces import KVCacheSpec
from enginecore.messages import ModelRunnerOutput
from tests.conformance.executors.mutants.base import Executor


def of_step(scheduled, **fields):
    future: Future[Any] = Future()
    future.set_result(ModelRunnerOutput(step=scheduled.step, **fields))
    return future


class ChangesItsMind(Executor):
    caught_by = "what_it_declares_is_constant"
    depth = 1

    @property
    def capabilities(self):
        return dataclasses.replace(self.inner.capabilities, max_concurrent_batches=self.depth)

    def output(self, scheduled, output):
        self.depth = 2
        return output


class EndsWithNoToken(Executor):
    caught_by = "the_model_has_tokens_and_a_length"

    @property
    def model_info(self):
        return dataclasses.replace(self.inner.model_info, eos_token_ids=(256,))


class HasLargeBlocks(Executor):
    caught_by = "kv_cache_specs_fit_the_engine"

    def get_kv_cache_specs(self):
        return {"layers.0": KVCacheSpec(2 * self.context.block_size, 8)}


class CountsInGigabytes(Executor):
    caught_by = "memory_is_a_number_of_bytes"

    def determine_available_memory(self):
        return 0.5


class AnswersChunks(Executor):
    caught_by = "steps_are_answered_for_those_they_sample"

    def output(self, scheduled, output):
        for request_id in scheduled.num_scheduled_tokens:
            if request_id not in output.request_ids:
                output.request_ids.append(request_id)
                output.sampled_token_ids.append([1])
        return output


class AnswersTheStepBefore(Executor):
    caught_by = "steps_are_answered_for_those_they_sample"

    def output(self, scheduled, output):
        output.step = max(output.step - 1, 0)
        return output


class DropsLongBatches(Executor):
    caught_by = "steps_are_answered_for_those_they_sample"

    def output(self, scheduled, output):
        del output.request_ids[1:], output.sampled_token_ids[1:]
        return output


class IgnoresEmptyPlans(Executor):
    caught_by = "plans_without_tokens_are_answered"
    patience = 0.2

    def execute_model(self, scheduled):
        future = self.inner.execute_model(scheduled)
        return future if scheduled.num_scheduled_tokens else Future()


class LearnsBeforeItForgets(Executor):
    """Who is gone and comes in one plan stays."""

    caught_by = "a_name_may_come_back"

    def plan(self, scheduled):
        plan = msgspec.convert(msgspec.to_builtins(scheduled), type(scheduled))
        twice = {new.request_id for new in plan.new_requests} & {*plan.finished_ids}
        plan.finished_ids = [request_id for request_id in plan.finished_ids if request_id not in twice]
        plan.new_requests = [new for new in plan.new_requests if new.request_id not in twice]
        return plan


class NeverForgets(Executor):
    """Of its seats none is ever free again."""

    caught_by = "those_who_ended_are_forgotten"

    def __init__(self, settings, context):
        super().__init__(settings, context)
        self.seats = 4 * context.max_num_seqs

    def plan(self, scheduled):
        self.seats -= len(scheduled.new_requests)
        if self.seats < 0:
            raise RuntimeError("no seat is free")
        return scheduled


class KeepsThePreempted(Executor):
    caught_by = "those_who_ended_are_forgotten"

    def __init__(self, settings, context):
        super().__init__(settings, context)
        self.kept: set[str] = set()

    def plan(self, scheduled):
        self.kept |= {*scheduled.preempted_ids}
        if len(self.kept) == 3:
            raise RuntimeError("too many were preempted")
        return scheduled


class TakesNoNoticeOfAdapters(Executor):
    caught_by = "what_it_cannot_do_is_refused_for_its_request_alone"

    @property
    def capabilities(self):
        return dataclasses.replace(self.inner.capabilities, adapters=False)


class SamplesAnything(Executor):
    """What there is nothing of is empty, not an error."""

    caught_by = "a_step_is_sampled_once"

    def sample_tokens(self, step, grammar):
        future: Future[Any] = Future()
        future.set_result(ModelRunnerOutput(step=step))
        return future


class KnowsEveryMethod(Executor):
    caught_by = "unknown_methods_are_named"

    def collective_rpc(self, method, *args, timeout=None):
        return [None]


class NamesNoMethod(Executor):
    caught_by = "unknown_methods_are_named"

    def collective_rpc(self, method, *args, timeout=None):
        raise AttributeError("no such attribute")


class PromisesTooMuch(Executor):
    caught_by = "as_many_batches_as_declared_may_be_in_flight"

    @property
    def capabilities(self):
        return dataclasses.replace(self.inner.capabilities, max_concurrent_batches=3)


class AnswersTheLastFirst(Executor):
    """The first of two steps in flight is not done before something else is submitted."""

    caught_by = "results_come_in_order"
    patience = 0.2

    def __init__(self, settings, context):
        super().__init__(settings, context)
        self.held: Any = None

    def execute_model(self, scheduled):
        held, self.held = self.held, None
        future = self.inner.execute_model(scheduled)
        if held is None:
            self.held = future, Future()
            return self.held[1]
        if held[0].done():
            held[1].set_result(held[0].result())
        return future
