"""From a model's files to a runner that can run steps, for the whole model or one rank's share of it."""

import torch

from enginecore.plugin import ExecutorContext
from enginecore_models.config import ModelConfig
from enginecore_models.source import ModelSource
from enginecore_torch.attention.interface import AttentionShape
from enginecore_torch.backends import make_backends
from enginecore_torch.input_batch import InputBatch
from enginecore_torch.models.architectures import find_architecture
from enginecore_torch.models.weights import load_weights
from enginecore_torch.parallel.communicator import Alone, Communicator
from enginecore_torch.parallel.layout import Layout, Shard, shard_of
from enginecore_torch.runner import ModelRunner
from enginecore_torch.settings import SingleExecutorSettings


def load_runner(
    settings: SingleExecutorSettings,
    context: ExecutorContext,
    source: ModelSource,
    dtype: torch.dtype,
    device: torch.device,
    shard: Shard | None = None,
    communicator: Communicator | None = None,
) -> ModelRunner:
    """Load what `shard` says of the model; by default all of it.

    Raises:
        ConfigurationError: a backend cannot be had here.
        ModelError: the model is not supported, or its files are not what its configuration says.
    """
    config = source.config
    architecture = find_architecture(config.architecture, source.name)
    shard = shard or shard_of(config, Layout(), 0)
    communicator = communicator or Alone()
    shape = AttentionShape(
        num_heads=len(shard.query_heads),
        num_kv_heads=len(shard.kv_heads),
        head_dim=config.head_dim,
        block_size=context.block_size,
        dtype=dtype,
        device=device,
    )
    attention, ops = make_backends(settings.attention, settings.ops, shape)
    longest = _longest(context, config)
    model = architecture(
        config,
        shard=shard,
        communicator=communicator,
        ops=ops,
        attention=attention,
        num_positions=longest,
        dtype=dtype,
        device=device,
    )
    load_weights(source, dtype, model.targets)
    batch = InputBatch(context.max_num_seqs, longest, context.block_size, config.eos_token_ids)
    return ModelRunner(model, attention, batch, device, shard=shard, communicator=communicator)


def largest_step(context: ExecutorContext, config: ModelConfig) -> list[int]:
    """Prompt lengths that fill a step."""
    longest = _longest(context, config)
    count = min(context.max_num_seqs, -(-context.max_num_batched_tokens // longest))
    tokens = min(context.max_num_batched_tokens, count * longest)
    return [min(longest, tokens - number * longest) for number in range(count)]


def _longest(context: ExecutorContext, config: ModelConfig) -> int:
    """Positions that are made; whether more may be asked for is the engine core's to say."""
    return min(context.max_model_len or config.max_position_embeddings, config.max_position_embeddings)
