"""MultiprocExecutor: a model divided over worker processes, the only ones that import torch."""

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import fields
from pathlib import Path
from typing import Any

from enginecore.errors import EngineCoreError
from enginecore.interfaces import Executor, ExecutorCapabilities, KVCacheConfig, KVCacheSpec, ModelInfo
from enginecore.messages import GrammarOutput, ModelRunnerOutput, SchedulerOutput
from enginecore.plugin import ExecutorContext
from enginecore_models.source import find_model
from enginecore_torch.kinds import ATTENTION, MODEL
from enginecore_torch.multiproc.control import CallMethod, InitializeKVCache, MeasureMemory, Order, RunStep, SampleStep
from enginecore_torch.multiproc.workers import WorkerGroup
from enginecore_torch.parallel.layout import Layout
from enginecore_torch.rank import check_kv_cache, is_deferred, refuse_sampling
from enginecore_torch.settings import MultiprocExecutorSettings
from enginecore_torch.threads import choose_num_threads, count_usable_cpus

logger = logging.getLogger(__name__)

WORKER = "enginecore_torch.multiproc.worker:main"
PATIENCE = 60.0
"""Seconds that ranks wait for one another beyond the executor's timeouts, which report better."""
LOCAL = frozenset({"catalog", "clock"})
"""Of the context, what is of no use in another process."""


class MultiprocExecutor(Executor):
    """Sends every plan to all ranks, at once or stage after stage; one of them answers."""

    def __init__(self, settings: MultiprocExecutorSettings, context: ExecutorContext, *, worker: str = WORKER) -> None:
        """Start the workers and wait until they have loaded the model that the context names.

        Args:
            settings: How the model is divided.
            context: What to load.
            worker: "module:function" that runs a rank.

        Raises:
            ConfigurationError: the model cannot be divided like this, or devices, dtype or
                backends cannot be had.
            ModelError: the model is not supported, or its files are not what its configuration
                says.
            EngineCoreError: a worker did not start, or not in time.
        """
        source = find_model(context.model)
        self._config, self._settings, self._block_size = source.config, settings, context.block_size
        self._layout = Layout(settings.tensor_parallel_size, settings.pipeline_parallel_size)
        self._layout.check(self._config)
        threads = choose_num_threads(settings.num_threads, executor="multiproc", num_processes=self._layout.num_ranks)
        payload = {
            "path": str(source.path),
            "settings": settings.model_dump(mode="json"),
            "context": {f.name: getattr(context, f.name) for f in fields(context) if f.name not in LOCAL},
            "catalog": context.catalog.to_plain(MODEL.name, ATTENTION.name),
            "num_threads": threads,
            "patience": max(settings.startup_timeout, settings.execute_timeout) + PATIENCE,
        }
        self._sampled: deque[tuple[int, list[int]]] = deque()  # tokens that the first stage lacks
        self._deferred: set[int] = set()
        self._group = WorkerGroup(
            worker, payload, self._layout.num_ranks, step_timeout=settings.execute_timeout, on_output=self._keep_tokens
        )
        try:
            self._ranks = self._group.await_ready(settings.startup_timeout)
        except BaseException:
            self._group.shutdown()
            raise
        self._on_cpu = {rank.device for rank in self._ranks} == {"cpu"}
        self._depth = self._choose_depth(threads or 1)
        self._model_info = ModelInfo(
            name=context.model,
            max_model_len=self._config.max_position_embeddings,
            vocab_size=self._config.vocab_size,
            eos_token_ids=tuple(self._config.eos_token_ids),
            dtype=self._ranks[0].dtype,
            device=", ".join(dict.fromkeys(rank.device for rank in self._ranks)),
        )
        logger.info(
            "%d ranks (tensor parallel %d, pipeline parallel %d) on %s, %d steps in flight at most",
            self._layout.num_ranks, self._layout.tensor, self._layout.pipeline, self._model_info.device, self._depth,
        )  # fmt: skip

    def _choose_depth(self, num_threads: int) -> int:
        """Batches in flight at most."""
        overlap = self._settings.overlap
        if overlap == "off":
            return 1
        if self._layout.pipeline > 1:
            return self._layout.pipeline
        # scheduling while the model runs pays only if it has a CPU of its own
        crowded = self._on_cpu and num_threads * self._layout.num_ranks >= count_usable_cpus()
        return 1 if overlap == "auto" and crowded else 2

    @property
    def capabilities(self) -> ExecutorCapabilities:
        """With one stage, sampled tokens stay where the next step needs them.

        With several, a request in two steps at once would only make one stage wait for another, so
        its token comes back first.
        """
        return ExecutorCapabilities(max_concurrent_batches=self._depth, feeds_tokens=self._layout.pipeline == 1)

    @property
    def model_info(self) -> ModelInfo:
        return self._model_info

    @property
    def worker_pids(self) -> list[int]:
        """Process ids in order of rank."""
        return self._group.pids

    @property
    def directory(self) -> Path:
        """Private to this executor, and gone with it."""
        return self._group.directory

    # -- KV cache ----------------------------------------------------------------------------------

    def get_kv_cache_specs(self) -> Mapping[str, KVCacheSpec]:
        """Of all layers; the page of a layer is the sum over the ranks that share it."""
        pages: Counter[str] = Counter()
        for rank in self._ranks:
            pages.update(rank.page_sizes)
        return {layer: KVCacheSpec(self._block_size, page) for layer, page in pages.items()}

    def determine_available_memory(self) -> int:
        """Bytes on all ranks together.

        Where each has a device of its own, the one with room for the fewest blocks decides; on the
        CPU they share the memory.
        """
        free = self._ask(MeasureMemory)
        if self._on_cpu:
            return int(min(free))
        blocks = [sum(rank.page_sizes.values()) for rank in self._ranks]
        return min(int(room) // block for room, block in zip(free, blocks, strict=True)) * sum(blocks)

    def initialize_from_config(self, config: KVCacheConfig) -> None:
        """Allocate the KV cache and run one token, which makes the kernels ready.

        Raises:
            ConfigurationError: the configuration is not for this model.
        """
        check_kv_cache(config, self.get_kv_cache_specs())
        self._ask(lambda number: InitializeKVCache(number, config.num_blocks))

    def _ask(self, order: Callable[[int], Order]) -> list[Any]:
        timeout = self._settings.startup_timeout
        try:
            return self._group.send(order).result(timeout)
        except FutureTimeout:
            raise EngineCoreError(
                f"the ranks did not set up the KV cache within startup_timeout = {timeout:g} seconds; if they need "
                "longer, raise executor.multiproc.startup_timeout"
            ) from None

    # -- steps -------------------------------------------------------------------------------------

    def execute_model(self, scheduled: SchedulerOutput) -> "Future[ModelRunnerOutput | None]":
        """The future of a step.

        That of a deferred step is done at once: a failure of its forward pass is one of
        `sample_tokens`.
        """
        sampled = [self._sampled.popleft() for _ in range(len(self._sampled))]
        if not is_deferred(scheduled):
            return self._group.send_step(lambda number: RunStep(number, scheduled, sampled))
        self._group.send_forward(scheduled, sampled)
        self._deferred.add(scheduled.step)
        future: Future[ModelRunnerOutput | None] = Future()
        future.set_result(None)
        return future

    def sample_tokens(self, step: int, grammar: GrammarOutput | None) -> "Future[ModelRunnerOutput]":
        """Sample a step whose plan deferred it; if there is none, the future fails."""
        self.check_health()
        future: Future[Any] = Future()
        if (refusal := refuse_sampling(step, self._deferred, grammar)) is not None:
            future.set_exception(refusal)
            return future
        self._deferred.remove(step)
        return self._group.send_step(lambda number: SampleStep(number, step))

    def _keep_tokens(self, output: ModelRunnerOutput) -> None:
        """Keep a step's tokens for the first stage, which gets them with the next plan."""
        if self._layout.pipeline > 1 and output.request_ids:
            self._sampled.append((output.step, [tokens[0] if tokens else 0 for tokens in output.sampled_token_ids]))

    # -- the rest ----------------------------------------------------------------------------------

    def collective_rpc(self, method: str, *args: Any, timeout: float | None = None) -> list[Any]:
        """Call one of the runner's `REMOTE_METHODS` on every rank.

        Without a timeout, `execute_timeout` holds. A late answer is dropped, and no other call gets
        it.
        """
        seconds = self._settings.execute_timeout if timeout is None else timeout
        future = self._group.send(lambda number: CallMethod(number, method, list(args)))
        try:
            return future.result(seconds)
        except FutureTimeout:
            if future.done():
                raise
            raise TimeoutError(f"not all ranks have answered the call of {method!r} within {seconds:g} s") from None

    def register_failure_callback(self, callback: Callable[[BaseException], None]) -> None:
        """A failure that came before is reported at once."""
        self._group.call_on_failure(callback)

    def check_health(self) -> None:
        self._group.check()

    def shutdown(self) -> None:
        self._group.shutdown()
