"""One rank of a model, in a worker's process."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from enginecore.clock import RealClock
from enginecore.messages import ModelRunnerOutput, SchedulerOutput
from enginecore.plugin import ExecutorContext
from enginecore_models.source import ModelSource, find_model
from enginecore_torch.device import device_of_rank, free_memory, resolve_dtype
from enginecore_torch.loading import largest_step, load_runner
from enginecore_torch.multiproc.control import Ready
from enginecore_torch.parallel.communicator import Alone
from enginecore_torch.parallel.distributed import TorchCommunicator
from enginecore_torch.parallel.layout import Layout, shard_of
from enginecore_torch.runner import REMOTE_METHODS, ModelRunner
from enginecore_torch.settings import MultiprocExecutorSettings


def load_rank(payload: Mapping[str, Any]) -> "TorchRank":
    """Meet the other ranks and load this one's share.

    Args:
        payload: As `MultiprocExecutor` makes it.

    Raises:
        ConfigurationError: device, dtype or a backend cannot be had here.
        ModelError: the model's files are not what its configuration says.
    """
    settings = MultiprocExecutorSettings.model_validate(payload["settings"])
    context = ExecutorContext(**payload["context"], clock=RealClock())
    layout, rank = Layout(settings.tensor_parallel_size, settings.pipeline_parallel_size), payload["rank"]
    device = device_of_rank(context.device, rank, layout.num_ranks)
    dtype = resolve_dtype(context.dtype, device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    elif payload["num_threads"] is not None:
        torch.set_num_threads(payload["num_threads"])
    source = find_model(payload["path"])
    shard = shard_of(source.config, layout, rank)
    if layout.num_ranks == 1:
        runner = load_runner(settings, context, source, dtype, device, shard, Alone())
    else:
        communicator = TorchCommunicator(layout, rank, device, Path(payload["directory"]), payload["patience"])
        _prepare(source, dtype, rank, communicator)
        runner = load_runner(settings, context, source, dtype, device, shard, communicator)
    return TorchRank(runner, dtype, device, largest_step(context, source.config))


def _prepare(source: ModelSource, dtype: torch.dtype, rank: int, communicator: TorchCommunicator) -> None:
    """One rank converts the model if it must be, and the others read what it made."""
    if rank == 0:
        source.prepare(dtype)
        communicator.say_prepared()
    else:
        communicator.await_prepared()


class TorchRank:
    """Fills `Rank` around a runner."""

    def __init__(
        self, runner: ModelRunner, dtype: torch.dtype, device: torch.device, largest_step: Sequence[int]
    ) -> None:
        self._runner, self._dtype, self._device, self._largest_step = runner, dtype, device, largest_step

    def ready(self) -> Ready:
        return Ready(str(self._dtype).removeprefix("torch."), str(self._device), self._runner.page_size_bytes)

    def measure(self) -> int:
        """On CUDA what is left after a pass over the largest step, whose activations stay reserved."""
        if self._device.type == "cuda":
            self._runner.initialize_kv_cache(1)
            self._runner.dummy_run(self._largest_step)
        return free_memory(self._device)

    def initialize(self, num_blocks: int) -> None:
        self._runner.initialize_kv_cache(num_blocks)
        self._runner.dummy_run([1])

    def learn(self, step: int, token_ids: list[int]) -> None:
        self._runner.learn(step, token_ids)

    def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput | None:
        return self._runner.execute(plan)

    def call(self, method: str, args: Sequence[Any]) -> Any:
        if method not in REMOTE_METHODS:
            raise AttributeError(f"the model runner offers no method {method!r}; it offers {', '.join(REMOTE_METHODS)}")
        return getattr(self._runner, method)(*args)
