"""SingleExecutor: the executor `single`, a model in this process."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import torch

from enginecore.errors import EngineDeadError
from enginecore.failure import FirstFailure
from enginecore.interfaces import Executor, ExecutorCapabilities, KVCacheConfig, KVCacheSpec, ModelInfo
from enginecore.messages import GrammarOutput, ModelRunnerOutput, SchedulerOutput
from enginecore.plugin import ExecutorContext
from enginecore_models.source import ModelSource, find_model
from enginecore_torch.device import resolve_device, resolve_dtype
from enginecore_torch.model_rank import ModelRank
from enginecore_torch.rank import Rank, check_kv_cache, is_deferred, refuse_sampling
from enginecore_torch.settings import SingleExecutorSettings
from enginecore_torch.threads import choose_num_threads


class SingleExecutor(Executor):
    """Runs each step inside `execute_model` and `sample_tokens`, whose futures are done."""

    def __init__(self, settings: SingleExecutorSettings, context: ExecutorContext, source: ModelSource) -> None:
        """Load the model of `source`.

        Raises:
            ConfigurationError: device, dtype or a backend cannot be had here.
            ModelError: the model is not supported, or its files are not what its configuration
                says.
        """
        config, device = source.config, resolve_device(context.device)
        dtype = resolve_dtype(context.dtype, device)
        if device.type == "cpu" and (threads := choose_num_threads(settings.num_threads, executor="single")):
            torch.set_num_threads(threads)
        rank = ModelRank.load(settings, context, source, dtype, device)
        self._rank: Rank | None = rank
        self._block_size = context.block_size
        self._info = rank.info
        self._model_info = ModelInfo(
            name=context.model,
            max_model_len=config.max_position_embeddings,
            vocab_size=config.vocab_size,
            eos_token_ids=tuple(config.eos_token_ids),
            dtype=self._info.dtype,
            device=self._info.device,
        )
        self._deferred: set[int] = set()
        self._failure = FirstFailure("the executor")

    @classmethod
    def from_context(cls, settings: SingleExecutorSettings, context: ExecutorContext) -> "SingleExecutor":
        """Find the model that the context names, and load it."""
        return cls(settings, context, find_model(context.model))

    @property
    def capabilities(self) -> ExecutorCapabilities:
        """One batch at a time; sampled tokens stay here and are fed to the next step."""
        return ExecutorCapabilities(feeds_tokens=True)

    @property
    def model_info(self) -> ModelInfo:
        return self._model_info

    def get_kv_cache_specs(self) -> Mapping[str, KVCacheSpec]:
        return {name: KVCacheSpec(self._block_size, size) for name, size in self._info.page_sizes.items()}

    def determine_available_memory(self) -> int:
        return self._alive().measure_free_memory()

    def initialize_from_config(self, config: KVCacheConfig) -> None:
        """Allocate the KV cache and run one token, which makes the kernels ready.

        Raises:
            ConfigurationError: the configuration is not for this model.
        """
        rank = self._alive()
        check_kv_cache(config, self.get_kv_cache_specs())
        rank.initialize_kv_cache(config.num_blocks)

    def execute_model(self, scheduled: SchedulerOutput) -> "Future[ModelRunnerOutput | None]":
        rank = self._alive()
        if is_deferred(scheduled):
            self._deferred.add(scheduled.step)
        return self._completed(lambda: rank.execute_model(scheduled))

    def sample_tokens(self, step: int, grammar: GrammarOutput | None) -> "Future[ModelRunnerOutput]":
        """Sample a step whose plan deferred it; if there is none, the future fails."""
        rank, future = self._alive(), Future[Any]()
        if (refusal := refuse_sampling(step, self._deferred, grammar)) is not None:
            future.set_exception(refusal)
            return future
        self._deferred.remove(step)
        return self._completed(lambda: rank.sample_tokens(step))

    def _completed(self, run: Callable[[], ModelRunnerOutput | None]) -> "Future[Any]":
        """The done future of part of a step.

        After a failure the state of requests is in doubt, so no further step runs.
        """
        future: Future[Any] = Future()
        try:
            future.set_result(run())
        except Exception as error:
            self._failure.fail(error)
            future.set_exception(error)
        return future

    def collective_rpc(self, method: str, *args: Any, timeout: float | None = None) -> list[Any]:
        """Call one of the runner's `REMOTE_METHODS`, on this thread: `timeout` never passes."""
        return [self._alive().call(method, args)]

    def register_failure_callback(self, callback: Callable[[BaseException], None]) -> None:
        """A failure that came before is reported at once."""
        self._failure.register(callback)

    def check_health(self) -> None:
        self._alive()

    def shutdown(self) -> None:
        if self._rank is not None:
            self._rank.shutdown()
        self._rank = None
        self._failure.close()

    def _alive(self) -> Rank:
        if (error := self._failure.error) is not None:
            raise EngineDeadError(f"the executor failed in an earlier step: {error}") from error
        if self._rank is None:
            raise EngineDeadError("the executor was shut down")
        return self._rank
