"""An executor whose tokens have no content: it answers every request that is sampled with token 0."""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from enginecore.core import EngineCore
from enginecore.interfaces import Executor, ExecutorCapabilities, KVCacheConfig, KVCacheSpec, ModelInfo
from enginecore.messages import GrammarOutput, ModelRunnerOutput, SchedulerOutput
from enginecore.plugin import Component, ComponentSettings, ExecutorContext
from tests.core.engines import make_core


class FacelessExecutor(Executor):
    """Steps take no time. `hits`: how many tokens of each request were in the cache whenever it was admitted."""

    def __init__(self, settings: ComponentSettings, context: ExecutorContext) -> None:
        self._block_size = context.block_size
        self._missing: dict[str, int] = {}
        self.hits: dict[str, list[int]] = {}

    @property
    def capabilities(self) -> ExecutorCapabilities:
        return ExecutorCapabilities(model_free=True, adapters=True)

    @property
    def model_info(self) -> ModelInfo:
        return ModelInfo(name="faceless", max_model_len=1 << 17, vocab_size=32_000)

    def get_kv_cache_specs(self) -> Mapping[str, KVCacheSpec]:
        return {"layers.0": KVCacheSpec(self._block_size, self._block_size)}

    def determine_available_memory(self) -> int:
        return 1 << 40

    def initialize_from_config(self, config: KVCacheConfig) -> None:
        pass

    def execute_model(self, scheduled: SchedulerOutput) -> "Future[ModelRunnerOutput | None]":
        for request_id in (*scheduled.finished_ids, *scheduled.preempted_ids):
            del self._missing[request_id]
        for new in scheduled.new_requests:
            self._missing[new.request_id] = len(new.token_ids) - new.num_computed_tokens
            self.hits.setdefault(new.request_id, []).append(new.num_computed_tokens)
        sampled = []
        for request_id, num_tokens in scheduled.num_scheduled_tokens.items():
            self._missing[request_id] -= num_tokens
            if not self._missing[request_id]:
                self._missing[request_id] = 1
                sampled.append(request_id)
        done: Future[ModelRunnerOutput | None] = Future()
        done.set_result(
            ModelRunnerOutput(step=scheduled.step, request_ids=sampled, sampled_token_ids=[[0] for _ in sampled])
        )
        return done

    def sample_tokens(self, step: int, grammar: GrammarOutput | None) -> "Future[ModelRunnerOutput]":
        raise AssertionError("execute_model samples")

    def collective_rpc(self, method: str, *args: Any, timeout: float | None = None) -> list[Any]:
        return [getattr(self, method)(*args)]

    def register_failure_callback(self, callback: Any) -> None:
        pass

    def check_health(self) -> None:
        pass

    def shutdown(self) -> None:
        pass


FACELESS = Component(kind="executor", name="faceless", factory=FacelessExecutor)


def make_faceless(**settings: Any) -> EngineCore:
    """An engine core on it, with all invariants checked."""
    return make_core(
        **{
            "components": [FACELESS],
            "executor": {"use": "faceless"},
            "debug": {"check_invariants": True},
            "num_kv_blocks": 64,
            **settings,
        }
    )
