"""An executor without a model: every token that it samples is 0."""

from collections.abc import Mapping
from concurrent.futures import Future

from enginecore.errors import EngineDeadError
from enginecore.interfaces import Executor, ExecutorCapabilities, KVCacheConfig, KVCacheSpec, ModelInfo
from enginecore.messages import ModelRunnerOutput, SchedulerOutput
from enginecore.plugin import Component, ComponentSettings, ExecutorContext, hookimpl


class FrozenExecutor(Executor):
    def __init__(self, settings: ComponentSettings, context: ExecutorContext) -> None:
        self._block_size = context.block_size
        self._missing: dict[str, int] = {}  # known tokens to compute before the next one is sampled
        self._is_up = True

    @property
    def capabilities(self) -> ExecutorCapabilities:
        return ExecutorCapabilities(model_free=True)

    @property
    def model_info(self) -> ModelInfo:
        return ModelInfo(name="frozen", max_model_len=4096, vocab_size=256)

    def get_kv_cache_specs(self) -> Mapping[str, KVCacheSpec]:
        return {"layers.0": KVCacheSpec(self._block_size, self._block_size)}

    def determine_available_memory(self) -> int:
        return 1 << 20

    def initialize_from_config(self, config: KVCacheConfig) -> None:
        self.check_health()

    def execute_model(self, scheduled: SchedulerOutput) -> "Future[ModelRunnerOutput | None]":
        self.check_health()
        done: Future[ModelRunnerOutput | None] = Future()
        try:
            done.set_result(self._run(scheduled))
        except KeyError as error:
            done.set_exception(error)
        return done

    def _run(self, scheduled: SchedulerOutput) -> ModelRunnerOutput:
        output = ModelRunnerOutput(step=scheduled.step)
        for request_id in (*scheduled.finished_ids, *scheduled.preempted_ids):
            del self._missing[request_id]
        for new in scheduled.new_requests:
            self._missing[new.request_id] = len(new.token_ids) - new.num_computed_tokens
            if new.params.logprobs is not None:
                output.errors[new.request_id] = "without a model there are no log-probabilities"
        for request_id, num_tokens in scheduled.num_scheduled_tokens.items():
            self._missing[request_id] -= num_tokens
            if not self._missing[request_id]:
                self._missing[request_id] = 1
                output.request_ids.append(request_id)
                output.sampled_token_ids.append([0])
        return output

    def check_health(self) -> None:
        if not self._is_up:
            raise EngineDeadError("frozen-executor was shut down")

    def shutdown(self) -> None:
        self._is_up = False


COMPONENT = Component(
    kind="executor", name="frozen-executor", factory=FrozenExecutor, summary="Without a model: every token is 0."
)


@hookimpl
def enginecore_components() -> list[Component]:
    return [COMPONENT]
