"""The loading of one rank in a worker process."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from enginecore.catalog import restore_catalog
from enginecore.clock import RealClock
from enginecore.plugin import ExecutorContext
from enginecore_models.source import ModelSource, find_model
from enginecore_torch.device import device_of_rank, resolve_dtype
from enginecore_torch.model_rank import ModelRank
from enginecore_torch.parallel.communicator import Communicator, SingleRankCommunicator
from enginecore_torch.parallel.distributed import TorchCommunicator
from enginecore_torch.parallel.layout import Layout, shard_of
from enginecore_torch.settings import MultiprocExecutorSettings


def load_rank(payload: Mapping[str, Any]) -> ModelRank:
    """Meet the other ranks and load this one's share.

    Args:
        payload: As `MultiprocExecutor` makes it.

    Raises:
        ConfigurationError: device, dtype or a backend cannot be had here.
        ModelError: the model's files are not what its configuration says.
    """
    settings = MultiprocExecutorSettings.model_validate(payload["settings"])
    context = ExecutorContext(**payload["context"], clock=RealClock(), catalog=restore_catalog(payload["catalog"]))
    layout, rank = Layout(settings.tensor_parallel_size, settings.pipeline_parallel_size), payload["rank"]
    device = device_of_rank(context.device, rank, layout.num_ranks)
    dtype = resolve_dtype(context.dtype, device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    elif payload["num_threads"] is not None:
        torch.set_num_threads(payload["num_threads"])
    source = find_model(payload["path"])
    communicator: Communicator = SingleRankCommunicator()
    if layout.num_ranks > 1:
        others = TorchCommunicator(layout, rank, device, Path(payload["directory"]), payload["patience"])
        _prepare_source(source, dtype, rank, others)
        communicator = others
    shard = shard_of(source.config, layout, rank)
    return ModelRank.load(settings, context, source, dtype, device, shard, communicator)


def _prepare_source(source: ModelSource, dtype: torch.dtype, rank: int, communicator: TorchCommunicator) -> None:
    """One rank converts the model if it must be, and the others read its copy."""
    if rank == 0:
        source.prepare(dtype)
        communicator.say_prepared()
    else:
        communicator.await_prepared()
