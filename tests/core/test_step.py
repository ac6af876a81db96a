"""The order of calls in a step, at every depth of the batch queue, with a scheduler and an executor that only note."""

from concurrent.futures import Future
from typing import Any

import pytest

from enginecore.clock import VirtualClock
from enginecore.core import EngineCore
from enginecore.errors import EngineDeadError, StepError
from enginecore.interfaces import ExecutorCapabilities
from enginecore.messages import EngineInfo, GrammarOutput, ModelRunnerOutput, SchedulerOutput

STEPS = 6


class NotingScheduler:
    """Plans `STEPS` steps of one request each; their bitmasks hold the tokens that it knows."""

    wake_time = None
    has_outputs = False

    def __init__(self, calls: list[str], defers: Any) -> None:
        self.calls, self.defers = calls, defers
        self.num_planned = 0
        self.tokens: list[int] = []

    def has_requests(self) -> bool:
        return self.num_planned < STEPS

    def schedule(self) -> SchedulerOutput:
        step = self.num_planned
        if step == STEPS:
            return SchedulerOutput(step=step)
        self.num_planned += 1
        self.calls.append(f"schedule {step}")
        return SchedulerOutput(step=step, num_scheduled_tokens={"r": 1}, defer_sampling=self.defers(step))

    def get_grammar_bitmask(self, scheduled: SchedulerOutput) -> GrammarOutput:
        self.calls.append(f"bitmask {scheduled.step}")
        return GrammarOutput(step=scheduled.step, request_ids=["r"], bitmask=bytes(self.tokens))

    def update_from_output(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> dict[Any, Any]:
        assert scheduled.step == output.step
        self.calls.append(f"update {scheduled.step}")
        self.tokens += output.sampled_token_ids[0]
        return {}

    def take_outputs(self) -> dict[Any, Any]:
        return {}

    def abort_requests(self, request_ids: Any) -> None:
        self.calls.append(f"abort {','.join(request_ids)}")


class NotingExecutor:
    """Samples the number of the step; notes the bitmasks that it is given."""

    def __init__(self, calls: list[str], depth: int, feeds_tokens: bool) -> None:
        self.calls = calls
        self.capabilities = ExecutorCapabilities(max_concurrent_batches=depth, feeds_tokens=feeds_tokens)
        self.masks: dict[int, bytes] = {}
        self.sampling = lambda: None

    def execute_model(self, scheduled: SchedulerOutput) -> Any:
        self.calls.append(f"execute {scheduled.step}")
        return done(None if scheduled.defer_sampling else sampled(scheduled.step))

    def sample_tokens(self, step: int, grammar: GrammarOutput) -> Any:
        self.calls.append(f"sample {step}")
        assert grammar.step == step
        self.masks[step] = grammar.bitmask
        self.sampling()
        return done(sampled(step))

    def register_failure_callback(self, callback: Any) -> None:
        return None


def done(result: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_result(result)
    return future


def sampled(step: int) -> ModelRunnerOutput:
    return ModelRunnerOutput(step=step, request_ids=["r"], sampled_token_ids=[[step]])


class Run:
    """An engine core on both; runs to the end unless told not to."""

    def __init__(self, depth: int, *, feeds_tokens: bool, defers: Any) -> None:
        self.calls: list[str] = []
        self.scheduler = NotingScheduler(self.calls, defers)
        self.executor = NotingExecutor(self.calls, depth, feeds_tokens)
        info = EngineInfo(
            model="none", max_model_len=99, vocab_size=99, eos_token_ids=[], num_blocks=9, block_size=9,
            max_num_seqs=9, max_num_batched_tokens=9, enable_prefix_caching=False, enable_chunked_prefill=False,
            max_concurrent_batches=depth, components={"executor": "noting", "scheduler": "noting"}, seed=0,
        )  # fmt: skip
        scheduler: Any = self.scheduler
        executor: Any = self.executor
        self.core = EngineCore(info=info, scheduler=scheduler, executor=executor, clock=VirtualClock())

    def to_its_end(self) -> "Run":
        while self.core.has_requests():
            self.core.advance()
        return self

    def at(self, call: str) -> int:
        return self.calls.index(call)


KINDS = {"all": lambda step: True, "some": lambda step: step % 3 != 1, "none": lambda step: False}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("feeds_tokens", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_the_bitmask_of_a_step_is_made_behind_its_forward_pass_and_sees_the_tokens_of_all_steps_before(
    depth: int, feeds_tokens: bool, kind: str
) -> None:
    run = Run(depth, feeds_tokens=feeds_tokens, defers=KINDS[kind]).to_its_end()
    for step in range(STEPS):
        assert run.calls.count(f"bitmask {step}") == 1
        assert run.at(f"execute {step}") < run.at(f"bitmask {step}") < run.at(f"update {step}")
        if step:
            assert run.at(f"update {step - 1}") < run.at(f"bitmask {step}")
    assert run.executor.masks == {step: bytes(range(step)) for step in range(STEPS) if KINDS[kind](step)}
    assert run.scheduler.tokens == list(range(STEPS))


@pytest.mark.parametrize("kind", ["all", "some"])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_where_tokens_are_fed_a_step_is_sampled_before_the_next_forward_pass(depth: int, kind: str) -> None:
    run = Run(depth, feeds_tokens=True, defers=KINDS[kind]).to_its_end()
    for step in run.executor.masks:
        if step + 1 < STEPS:
            assert run.at(f"sample {step}") < run.at(f"execute {step + 1}")


def test_one_batch_at_a_time() -> None:
    run = Run(1, feeds_tokens=False, defers=KINDS["all"]).to_its_end()
    assert run.calls[:5] == ["schedule 0", "execute 0", "bitmask 0", "sample 0", "update 0"]
    assert run.calls == [f"{call.split()[0]} {step}" for step in range(STEPS) for call in run.calls[:5]]
    ordinary = Run(1, feeds_tokens=False, defers=KINDS["none"]).to_its_end()
    assert ordinary.calls[:5] == ["schedule 0", "execute 0", "bitmask 0", "update 0", "schedule 1"]


def test_a_step_that_is_sampled_later_runs_while_the_next_one_is_scheduled() -> None:
    """Two in flight, fed: the next forward pass is queued behind the sampling before that is waited for."""
    run = Run(2, feeds_tokens=True, defers=KINDS["all"]).to_its_end()
    assert run.calls[:14] == [
        "schedule 0", "execute 0", "bitmask 0", "sample 0",
        "schedule 1", "execute 1", "update 0", "bitmask 1", "sample 1",
        "schedule 2", "execute 2", "update 1", "bitmask 2", "sample 2",
    ]  # fmt: skip


def test_where_tokens_are_not_fed_the_queue_is_filled_first() -> None:
    run = Run(4, feeds_tokens=False, defers=KINDS["all"]).to_its_end()
    filled = [f"{call} {step}" for step in range(4) for call in ("schedule", "execute")]
    assert run.calls[: len(filled)] == filled
    assert run.calls[len(filled) :][:8] == [
        "bitmask 0", "sample 0", "update 0", "schedule 4", "execute 4", "bitmask 1", "sample 1", "update 1",
    ]  # fmt: skip


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_an_abort_between_forward_pass_and_sampling_is_in_force_before_the_update(depth: int) -> None:
    run = Run(depth, feeds_tokens=True, defers=KINDS["all"])
    run.executor.sampling = lambda: run.core.abort_requests(["r"])
    run.core.advance()
    run.executor.sampling = lambda: None
    run.to_its_end()
    assert run.at("sample 0") < run.at("abort r") < run.at("update 0")


def test_a_failure_of_sampling_names_the_step() -> None:
    run = Run(1, feeds_tokens=False, defers=KINDS["all"])

    def fail() -> None:
        raise ValueError("no logits")

    run.executor.sampling = fail
    with pytest.raises(EngineDeadError, match="sampling step 0 failed: ValueError: no logits") as raised:
        run.core.advance()
    assert isinstance(raised.value.__cause__, StepError)


@pytest.mark.parametrize("depth", [1, 2])
def test_sampling_that_is_answered_with_none_ends_the_engine_instead_of_being_asked_for_again(depth: int) -> None:
    run = Run(depth, feeds_tokens=False, defers=KINDS["all"])
    run.executor.sample_tokens = lambda step, grammar: done(None)  # type: ignore[method-assign]
    with pytest.raises(EngineDeadError, match="answered sample_tokens with None") as failure:
        run.to_its_end()
    assert isinstance(failure.value.__cause__, StepError)
