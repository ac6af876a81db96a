"""The executor `simulated`: understands a plan, asks the cost model, and completes a future when the time has come."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import asdict
from functools import partial
from typing import Any

from enginecore.errors import EngineCoreError, EngineDeadError
from enginecore.interfaces import Executor, ExecutorCapabilities, KVCacheConfig, KVCacheSpec, ModelInfo
from enginecore.messages import GrammarOutput, ModelRunnerOutput, SchedulerOutput
from enginecore.plugin import ExecutorContext
from enginecore_simulated import SimulatedExecutorSettings
from enginecore_simulated.assembly import find_costs, find_deployment
from enginecore_simulated.charge import make_charge
from enginecore_simulated.durations import make_durations
from enginecore_simulation import Pipeline, StepTracker

NO_LOGPROBS = "the simulated executor has no model, so it knows no log-probabilities: leave logprobs None"


class SimulatedExecutor(Executor):
    """Every token that it samples is 0."""

    def __init__(self, settings: SimulatedExecutorSettings, context: ExecutorContext) -> None:
        self._settings = settings
        self._context = context
        self._clock = context.clock
        self._deployment = deployment = find_deployment(settings, context)
        self._costs = find_costs(settings, deployment)
        self._seconds = make_durations(settings.step_times, self._costs)
        self._charge = make_charge(settings.scheduler_charge, self._costs, context.clock)
        self._tracker = StepTracker()
        self._pipeline = Pipeline(deployment.stage_layers)
        self._unsampled: dict[int, ModelRunnerOutput] = {}
        self._is_up = True

    @property
    def capabilities(self) -> ExecutorCapabilities:
        """With several stages a token comes back before it is fed, as it must come from the last to the first."""
        stages = self._deployment.pipeline_parallel_size
        return ExecutorCapabilities(
            max_concurrent_batches=stages if stages > 1 else 2 if self._settings.overlap else 1,
            feeds_tokens=stages == 1,
            model_free=True,
        )

    @property
    def model_info(self) -> ModelInfo:
        shape = self._deployment.shape
        return ModelInfo(
            name=self._context.model,
            max_model_len=self._settings.max_position_embeddings or shape.max_position_embeddings,
            vocab_size=shape.vocab_size,
            device=f"simulated {self._settings.hardware}",
        )

    def get_kv_cache_specs(self) -> Mapping[str, KVCacheSpec]:
        size = self._context.block_size
        spec = KVCacheSpec(size, self._deployment.kv_page_bytes(size))
        return {f"layers.{layer}": spec for layer in range(self._deployment.shape.num_layers)}

    def determine_available_memory(self) -> int:
        """Bytes of the KV blocks that the cards can hold."""
        size, deployment = self._context.block_size, self._deployment
        num_blocks = deployment.num_kv_blocks(size, self._settings.gpu_memory_utilization)
        return num_blocks * deployment.kv_page_bytes(size) * deployment.shape.num_layers

    def initialize_from_config(self, config: KVCacheConfig) -> None:
        """There is no cache."""
        self.check_health()

    def execute_model(self, scheduled: SchedulerOutput) -> "Future[ModelRunnerOutput | None]":
        self.check_health()
        step = self._tracker.apply(scheduled)
        # one list for all rows, new in each step: a change of it stays in this step's outputs
        token = [0]
        output = ModelRunnerOutput(
            step=scheduled.step,
            request_ids=step.sampled_ids,
            sampled_token_ids=[token] * len(step.sampled_ids),
            errors={new.request_id: NO_LOGPROBS for new in scheduled.new_requests if new.params.logprobs is not None},
        )
        future: Future[ModelRunnerOutput | None] = Future()
        begin = self._charge.submitted(self._clock.now())
        done = self._pipeline.push(begin, self._seconds(step.features))
        result: ModelRunnerOutput | None = output
        if scheduled.defer_sampling and scheduled.num_scheduled_tokens:
            self._unsampled[scheduled.step], result = output, None
        self._clock.call_at(done, partial(self._complete, future, result))
        return future

    def _complete(self, future: "Future[ModelRunnerOutput | None]", result: ModelRunnerOutput | None) -> None:
        self._charge.completed(self._clock.now())
        future.set_result(result)

    def sample_tokens(self, step: int, grammar: GrammarOutput | None) -> "Future[ModelRunnerOutput]":
        """Takes no time: the cost of a step counts its sampling."""
        if step not in self._unsampled:
            raise EngineCoreError(f"step {step} does not wait to be sampled; those that do: {[*self._unsampled]}")
        future: Future[ModelRunnerOutput] = Future()
        future.set_result(self._unsampled.pop(step))
        return future

    def collective_rpc(self, method: str, *args: Any, timeout: float | None = None) -> list[Any]:
        """`get_request_ids` and `get_costs`, of the one rank that there is."""
        self.check_health()
        methods: dict[str, Callable[..., Any]] = {
            "get_request_ids": lambda: self._tracker.request_ids,
            "get_costs": lambda: asdict(self._costs),
        }
        if method not in methods:
            raise AttributeError(f"the simulated executor has no method {method!r}; it has {', '.join(methods)}")
        return [methods[method](*args)]

    def register_failure_callback(self, callback: Callable[[BaseException], None]) -> None:
        """Ignored: this executor never fails by itself."""

    def check_health(self) -> None:
        if not self._is_up:
            raise EngineDeadError("the simulated executor was shut down")

    def shutdown(self) -> None:
        self._is_up = False
