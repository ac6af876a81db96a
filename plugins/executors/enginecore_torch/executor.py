"""The executor `single`: the model in this process, one step at a time."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import torch

from enginecore.errors import ConfigurationError, EngineCoreError, EngineDeadError
from enginecore.interfaces import Executor, ExecutorCapabilities, KVCacheConfig, KVCacheSpec, ModelInfo
from enginecore.messages import GrammarOutput, ModelRunnerOutput, SchedulerOutput
from enginecore.plugin import ExecutorContext
from enginecore_models.source import ModelSource, find_model
from enginecore_torch.device import free_memory, resolve_device, resolve_dtype
from enginecore_torch.loading import largest_step, load_runner
from enginecore_torch.runner import REMOTE_METHODS, ModelRunner
from enginecore_torch.settings import SingleExecutorSettings
from enginecore_torch.threads import choose_num_threads


class SingleExecutor(Executor):
    """Runs each step to its end inside `execute_model`: the future that it returns is done."""

    def __init__(self, settings: SingleExecutorSettings, context: ExecutorContext, source: ModelSource) -> None:
        """Load the model of `source`.

        Raises:
            ConfigurationError: device, dtype or a backend cannot be had here.
            ModelError: the model is not supported, or its files are not what its configuration says.
        """
        config = source.config
        self._device = resolve_device(context.device)
        dtype = resolve_dtype(context.dtype, self._device)
        if self._device.type == "cpu" and (threads := choose_num_threads(settings.num_threads, executor="single")):
            torch.set_num_threads(threads)
        self._largest_step = largest_step(context, config)
        runner = load_runner(settings, context, source, dtype, self._device)
        self._runner: ModelRunner | None = runner
        self._spec = KVCacheSpec(context.block_size, runner.page_size_bytes)
        self._layer_names = runner.layer_names
        self._model_info = ModelInfo(
            name=context.model,
            max_model_len=config.max_position_embeddings,
            vocab_size=config.vocab_size,
            eos_token_ids=tuple(config.eos_token_ids),
            dtype=str(dtype).removeprefix("torch."),
            device=str(self._device),
        )
        self._failure: BaseException | None = None
        self._on_failure: list[Callable[[BaseException], None]] = []

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
        return dict.fromkeys(self._layer_names, self._spec)

    def determine_available_memory(self) -> int:
        """On CUDA what is left after a pass over the largest step, whose activations stay reserved."""
        runner = self._alive()
        if self._device.type == "cuda":
            runner.initialize_kv_cache(1)
            runner.dummy_run(self._largest_step)
        return free_memory(self._device)

    def initialize_from_config(self, config: KVCacheConfig) -> None:
        """Allocate the KV cache and run one token, so that kernels are made before the first request comes.

        Raises:
            ConfigurationError: the configuration is not for this model.
        """
        runner = self._alive()
        if len(config.groups) != 1 or set(config.groups[0]) != set(self._layer_names):
            raise ConfigurationError(
                f"the KV cache must be one group of the {len(self._layer_names)} layers that were specified, "
                f"got {len(config.groups)} groups of {[len(group) for group in config.groups]} layers"
            )
        if config.block_size != self._spec.block_size:
            raise ConfigurationError(
                f"the KV cache has block_size {config.block_size}, the executor was built for {self._spec.block_size}"
            )
        runner.initialize_kv_cache(config.num_blocks)
        runner.dummy_run([1])

    def execute_model(self, scheduled: SchedulerOutput) -> "Future[ModelRunnerOutput | None]":
        runner = self._alive()
        future: Future[ModelRunnerOutput | None] = Future()
        try:
            future.set_result(runner.execute(scheduled))
        except Exception as error:
            self._fail(error)
            future.set_exception(error)
        return future

    def sample_tokens(self, step: int, grammar: GrammarOutput | None) -> "Future[ModelRunnerOutput]":
        """Never wanted: `execute_model` samples."""
        self._alive()
        future: Future[ModelRunnerOutput] = Future()
        future.set_exception(EngineCoreError(f"step {step} does not wait for sampling: execute_model has sampled it"))
        return future

    def collective_rpc(self, method: str, *args: Any, timeout: float | None = None) -> list[Any]:
        """Call one of `REMOTE_METHODS` of the runner; it runs here, so `timeout` never passes."""
        runner = self._alive()
        if method not in REMOTE_METHODS:
            raise AttributeError(f"the model runner offers no method {method!r}; it offers {', '.join(REMOTE_METHODS)}")
        return [getattr(runner, method)(*args)]

    def register_failure_callback(self, callback: Callable[[BaseException], None]) -> None:
        """A failure that came before is reported at once."""
        if self._failure is not None:
            callback(self._failure)
        else:
            self._on_failure.append(callback)

    def check_health(self) -> None:
        self._alive()

    def shutdown(self) -> None:
        if self._runner is not None:
            self._runner.close()
        self._runner = None
        self._on_failure.clear()

    def _alive(self) -> ModelRunner:
        if self._failure is not None:
            raise EngineDeadError(f"the executor failed in an earlier step: {self._failure}") from self._failure
        if self._runner is None:
            raise EngineDeadError("the executor was shut down")
        return self._runner

    def _fail(self, error: Exception) -> None:
        """After a failed step the requests' state is in doubt: no further step runs."""
        self._failure = error
        callbacks, self._on_failure = self._on_failure, []
        for callback in callbacks:
            callback(error)
