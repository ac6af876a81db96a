"""A recording executor: notes when each step of another executor was submitted and ended."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from enginecore.clock import Clock
from enginecore.errors import EngineCoreError
from enginecore.interfaces import Executor, ExecutorCapabilities, KVCacheConfig, KVCacheSpec, ModelInfo
from enginecore.messages import GrammarOutput, ModelRunnerOutput, SchedulerOutput
from enginecore_simulation import StepFeatures, StepTracker


class RecordedStep:
    """One step.

    Attributes:
        plan: As submitted.
        features: Features of the step.
        submitted: Seconds on the engine's clock.
        ended: The same; None while it runs.
    """

    __slots__ = ("ended", "features", "plan", "submitted")

    def __init__(self, plan: SchedulerOutput, features: StepFeatures, submitted: float) -> None:
        self.plan = plan
        self.features = features
        self.submitted = submitted
        self.ended: float | None = None


class RecordingExecutor(Executor):
    """Stands before another executor, whose place it takes: `core.executor = RecordingExecutor(core.executor, clock)`.

    Attributes:
        steps: In order.
    """

    def __init__(self, executor: Executor, clock: Clock) -> None:
        self._executor = executor
        self._clock = clock
        self._tracker = StepTracker()
        self._unsampled: dict[int, RecordedStep] = {}
        self.steps: list[RecordedStep] = []

    def execute_model(self, scheduled: SchedulerOutput) -> "Future[ModelRunnerOutput | None]":
        features = self._tracker.apply(scheduled).features
        step = RecordedStep(scheduled, features, self._clock.now())
        self.steps.append(step)
        future = self._executor.execute_model(scheduled)
        future.add_done_callback(partial(self._forwarded, step))
        return future

    def sample_tokens(self, step: int, grammar: GrammarOutput | None) -> "Future[ModelRunnerOutput]":
        future = self._executor.sample_tokens(step, grammar)
        future.add_done_callback(partial(self._ended, self._unsampled.pop(step)))
        return future

    def _forwarded(self, step: RecordedStep, future: "Future[ModelRunnerOutput | None]") -> None:
        if future.exception() is None and future.result() is None:
            self._unsampled[step.plan.step] = step
        else:
            self._ended(step, future)

    def _ended(self, step: RecordedStep, future: "Future[Any]") -> None:
        step.ended = self._clock.now()

    # -- as the other one does -------------------------------------------------------------------------------------

    @property
    def capabilities(self) -> ExecutorCapabilities:
        return self._executor.capabilities

    @property
    def model_info(self) -> ModelInfo:
        return self._executor.model_info

    def get_kv_cache_specs(self) -> Mapping[str, KVCacheSpec]:
        return self._executor.get_kv_cache_specs()

    def determine_available_memory(self) -> int:
        return self._executor.determine_available_memory()

    def initialize_from_config(self, config: KVCacheConfig) -> None:
        self._executor.initialize_from_config(config)

    def take_draft_token_ids(self) -> Mapping[str, Sequence[int]]:
        return self._executor.take_draft_token_ids()

    def add_adapter(self, name: str, path: str) -> None:
        self._executor.add_adapter(name, path)

    def remove_adapter(self, name: str) -> None:
        self._executor.remove_adapter(name)

    def list_adapters(self) -> list[str]:
        return self._executor.list_adapters()

    def collective_rpc(self, method: str, *args: Any, timeout: float | None = None) -> list[Any]:
        return self._executor.collective_rpc(method, *args, timeout=timeout)

    def register_failure_callback(self, callback: Callable[[BaseException], None]) -> None:
        self._executor.register_failure_callback(callback)

    def check_health(self) -> None:
        self._executor.check_health()

    def shutdown(self) -> None:
        self._executor.shutdown()


def replayable_seconds(steps: Sequence[RecordedStep], woken: Mapping[int, float]) -> list[float]:
    """Values of `executor.simulated.step_times` with which a virtual run plans the same steps as this one did.

    For one batch in flight at a time. A step lasts until the next one was submitted, so that requests that came
    during the host work between them come in time; before a wait it lasts to its end.

    Args:
        steps: All steps, in order, each ended.
        woken: For each step before which the engine had nothing to do: its index, and when a
            request came.
    """
    seconds = []
    for index, step in enumerate(steps):
        if step.ended is None:
            raise EngineCoreError(f"step {step.plan.step} has not ended: a run is repeated from its whole recording")
        waits = index + 1 == len(steps) or index + 1 in woken
        ended = step.ended if waits else steps[index + 1].submitted
        seconds.append(ended - woken.get(index, step.submitted))
    return seconds
