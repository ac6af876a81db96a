"""The oracle as an Executor: its life cycle, and futures that end on the engine's clock."""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import msgspec

from enginecore.contracts import PlanLimits
from enginecore.errors import EngineDeadError, InvariantError
from enginecore.failure import FirstFailure
from enginecore.interfaces import Executor, ExecutorCapabilities, KVCacheConfig, KVCacheSpec, ModelInfo
from enginecore.messages import GrammarOutput, ModelRunnerOutput, SchedulerOutput
from enginecore.plugin import ExecutorContext
from enginecore_conformance.oracle.faults import FaultInjector, OracleFault
from enginecore_conformance.oracle.memory import LateSlotMemory, SlotMemory
from enginecore_conformance.oracle.model import DIGEST_BYTES, OracleModel
from enginecore_conformance.oracle.settings import Fault, OracleSettings
from enginecore_conformance.oracle.trusting import TrustingWorker
from enginecore_conformance.oracle.verifier import StepVerifier
from enginecore_conformance.oracle.worker import OracleWorker, Unsampled


class StepTrace(msgspec.Struct):
    """One step, as the executor saw it.

    Attributes:
        plan: As it came over the wire.
        batches_in_flight: When it was submitted, itself included.
        submitted: Time of submission, in seconds on the engine's clock.
        output: Output of the step; None while it is in flight, and if it failed.
    """

    plan: SchedulerOutput
    batches_in_flight: int
    submitted: float
    output: ModelRunnerOutput | None = None


class _Outcome(NamedTuple):
    output: ModelRunnerOutput | None
    error: Exception | None


class _Forwarded(NamedTuple):
    unsampled: list[Unsampled]
    computed: Collection[str]  # ids of all requests in the step
    was_asked: bool  # by the plan


@dataclass(slots=True)
class _Batch:
    wire: bytes
    defer_sampling: bool
    batches_in_flight: int
    submitted: float
    last_returned: int
    future: "Future[ModelRunnerOutput | None]" = field(default_factory=Future)
    outcome: _Outcome | None = None


class OracleExecutor(Executor):
    """Runs each step when its time has come, on the thread that waits for it, from the bytes of its
    plan.
    """

    def __init__(self, settings: OracleSettings, context: ExecutorContext) -> None:
        self._settings = settings
        self._context = context
        self._clock = context.clock
        self._model = OracleModel(settings.vocab_size, settings.eos_token_ids, settings.max_model_len)
        self._decoder = msgspec.msgpack.Decoder(SchedulerOutput)
        self._faults = FaultInjector(settings.faults)
        self._in_flight: deque[_Batch] = deque()
        self._unsampled: dict[int, _Forwarded] = {}  # by step, oldest first
        self._history: list[StepTrace] = []
        self._last_returned = -1
        self._idle_from = [0.0] * settings.stages
        self._failure = FirstFailure("the oracle executor")
        self._worker: OracleWorker | None = None
        self._verifier: StepVerifier | None = None
        self._late: LateSlotMemory | None = None

    @property
    def capabilities(self) -> ExecutorCapabilities:
        return ExecutorCapabilities(
            max_concurrent_batches=self._settings.depth,
            feeds_tokens=self._settings.feeds_tokens,
            in_order=self._settings.in_order,
            adapters=True,
        )

    @property
    def model_info(self) -> ModelInfo:
        return ModelInfo(
            name="oracle",
            max_model_len=self._settings.max_model_len,
            vocab_size=self._settings.vocab_size,
            eos_token_ids=self._settings.eos_token_ids,
            dtype="int64",
            device="cpu",
        )

    def get_kv_cache_specs(self) -> Mapping[str, KVCacheSpec]:
        size = self._context.block_size
        return {"layers.0": KVCacheSpec(size, size * DIGEST_BYTES, non_causal=self._settings.non_causal)}

    def determine_available_memory(self) -> int:
        return self._settings.kv_memory

    def initialize_from_config(self, config: KVCacheConfig) -> None:
        self._late = None if self._settings.in_order else LateSlotMemory(config)
        memory = self._late or SlotMemory(config)
        worker_class = OracleWorker if self._settings.read_back else TrustingWorker
        self._worker = worker_class(self._model, memory, feeds_tokens=self._settings.feeds_tokens)
        if self._settings.verify:
            limits = PlanLimits(
                max_num_seqs=self._context.max_num_seqs,
                max_num_batched_tokens=self._context.max_num_batched_tokens,
                max_model_len=min(self._context.max_model_len or self._model.max_model_len, self._model.max_model_len),
                num_blocks=config.num_blocks,
                block_size=config.block_size,
            )
            self._verifier = StepVerifier(self._worker.rows, memory, limits)

    def execute_model(self, scheduled: SchedulerOutput) -> "Future[ModelRunnerOutput | None]":
        self.check_health()
        if len(self._in_flight) >= self._settings.depth:
            raise InvariantError(f"{len(self._in_flight)} batches are in flight, depth = {self._settings.depth}")
        self._check_sampled()
        now = self._clock.now()
        # the bytes, not the object: what the scheduler does to it afterwards must not reach a worker
        wire = msgspec.msgpack.encode(scheduled)
        batch = _Batch(wire, scheduled.defer_sampling, len(self._in_flight) + 1, now, self._last_returned)
        batch.future.set_running_or_notify_cancel()
        self._in_flight.append(batch)
        self._clock.call_at(self._end_of(scheduled, now), partial(self._complete, batch))
        if self._late:  # out of order: it may run ahead of those before it
            self._late.begin_step()
            batch.outcome = self._attempt(batch)
        return batch.future

    def sample_tokens(self, step: int, grammar: GrammarOutput | None) -> "Future[ModelRunnerOutput]":
        self.check_health()
        if next(iter(self._unsampled), None) != step:
            raise InvariantError(
                f"sample_tokens(step={step}): no such step waits, or others wait before it: {[*self._unsampled]}"
            )
        future: Future[ModelRunnerOutput] = Future()
        future.set_result(self._sample(step, self._unsampled.pop(step)))
        self._last_returned = step
        return future

    def collective_rpc(self, method: str, *args: Any, timeout: float | None = None) -> list[Any]:
        methods: dict[str, Callable[..., Any]] = {
            "get_request_ids": self._get_worker().get_request_ids,
            "get_history": self._history.copy,
            "inject": self._inject,
        }
        if method not in methods:
            raise AttributeError(f"the oracle's worker has no method {method!r}; it has {', '.join(methods)}")
        return [methods[method](*args)]

    def register_failure_callback(self, callback: Callable[[BaseException], None]) -> None:
        """A failure that came before is reported at once."""
        self._failure.register(callback)

    def check_health(self) -> None:
        if (error := self._failure.error) is not None:
            raise EngineDeadError(f"the oracle executor has failed: {error}") from error
        self._get_worker()

    def shutdown(self) -> None:
        self._worker = self._verifier = None

    def _get_worker(self) -> OracleWorker:
        if self._worker is None:
            raise EngineDeadError("the oracle executor has no KV cache: it was not initialised yet, or is shut down")
        return self._worker

    def _check_sampled(self) -> None:
        """With feeding, a forward pass needs the tokens of the step before."""
        waiting = [step for step, forwarded in self._unsampled.items() if forwarded.was_asked]
        if self._settings.feeds_tokens and (waiting or any(batch.defer_sampling for batch in self._in_flight)):
            raise InvariantError(
                f"execute_model with steps in flight that are not sampled yet (waiting: {waiting}): this executor "
                "feeds tokens, so sample_tokens comes first"
            )

    def _inject(self, fault: Fault) -> None:
        self._faults.add(fault)

    def _end_of(self, scheduled: SchedulerOutput, now: float) -> float:
        """When a step that is submitted now has left the last stage."""
        duration = self._settings.step_time + self._settings.token_time * scheduled.total_num_scheduled_tokens
        for stage, idle_from in enumerate(self._idle_from):
            now = self._idle_from[stage] = max(now, idle_from) + duration
        return now

    def _complete(self, batch: _Batch) -> None:
        """The batch's time has come."""
        self._in_flight.remove(batch)
        output, error = batch.outcome or self._attempt(batch)
        if self._late:
            self._late.end_step()
        if error:
            batch.future.set_exception(error)
            return
        if output:
            self._last_returned = output.step
        batch.future.set_result(output)

    def _attempt(self, batch: _Batch) -> _Outcome:
        try:
            return _Outcome(self._run(batch), None)
        except Exception as error:  # the call that waits for the step raises it
            return _Outcome(None, error)

    def _run(self, batch: _Batch) -> ModelRunnerOutput | None:
        plan = self._decoder.decode(batch.wire)
        if self._settings.record:
            self._history.append(StepTrace(plan, batch.batches_in_flight, batch.submitted))
        self._fail_if_told(plan.step)
        worker = self._get_worker()
        if self._verifier:
            self._verifier.check_plan(plan, batch.last_returned)
        worker.apply(plan)
        unsampled = worker.forward(plan, batch.last_returned)
        if self._verifier:
            self._verifier.check_step(plan)
        forwarded = _Forwarded(unsampled, plan.num_scheduled_tokens.keys(), plan.defer_sampling)
        if (self._settings.two_phase or plan.defer_sampling) and plan.num_scheduled_tokens:
            self._unsampled[plan.step] = forwarded
            return None
        return self._sample(plan.step, forwarded)

    def _sample(self, step: int, forwarded: _Forwarded) -> ModelRunnerOutput:
        output = self._get_worker().sample(step, forwarded.unsampled)
        self._faults.distort(output, forwarded.computed)
        if self._settings.record:
            next(trace for trace in reversed(self._history) if trace.plan.step == step).output = output
        return output

    def _fail_if_told(self, step: int) -> None:
        fault = self._faults.take_failure(step)
        if fault is None:
            return
        error = OracleFault(f"the oracle was set to fail at step {fault.step}")
        if fault.kind == "die":
            self._failure.fail(error)
        raise error
