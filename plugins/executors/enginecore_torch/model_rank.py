"""ModelRank: one rank of a real model, loaded with torch."""

from collections.abc import Sequence
from typing import Any

import torch

from enginecore.errors import ConfigurationError, ModelError
from enginecore.messages import ModelRunnerOutput, SchedulerOutput
from enginecore.plugin import Catalog, ExecutorContext
from enginecore_models.config import ModelConfig
from enginecore_models.source import ModelSource
from enginecore_torch.attention.interface import AttentionBackend, AttentionContext, AttentionNeeds
from enginecore_torch.device import free_memory
from enginecore_torch.input_batch import InputBatch
from enginecore_torch.models.interface import Model, ModelContext
from enginecore_torch.models.weights import load_weights
from enginecore_torch.ops.choice import choose_ops
from enginecore_torch.parallel.communicator import Communicator, SingleRankCommunicator
from enginecore_torch.parallel.layout import Layout, Shard, shard_of
from enginecore_torch.rank import Rank, RankInfo
from enginecore_torch.runner import REMOTE_METHODS, ModelRunner
from enginecore_torch.settings import SingleExecutorSettings


class ModelRank(Rank):
    """A share of a model, its KV cache and its requests."""

    def __init__(self, runner: ModelRunner, dtype: torch.dtype, device: torch.device, largest_step: list[int]) -> None:
        """`largest_step`: lengths of prompts that fill a step."""
        self._runner, self._dtype, self._device, self._largest_step = runner, dtype, device, largest_step

    @classmethod
    def load(
        cls,
        settings: SingleExecutorSettings,
        context: ExecutorContext,
        source: ModelSource,
        dtype: torch.dtype,
        device: torch.device,
        shard: Shard | None = None,
        communicator: Communicator | None = None,
    ) -> "ModelRank":
        """Load what `shard` says of the model; by default all of it.

        Raises:
            ConfigurationError: a backend cannot serve the model here.
            ModelError: the model is not supported, or its files are not what its configuration
                says.
        """
        config = source.config
        shard = shard or shard_of(config, Layout(), 0)
        communicator = communicator or SingleRankCommunicator()
        longest = _longest_request(context, config)

        model_context = ModelContext(
            config=config,
            shard=shard,
            communicator=communicator,
            ops=choose_ops(settings.ops, dtype, device),
            new_attention=lambda needs: _build_attention(needs, context.catalog),
            block_size=context.block_size,
            num_positions=longest,
            dtype=dtype,
            device=device,
        )
        model = _build_model(source.name, model_context, context.catalog)
        load_weights(source, dtype, model.tensors)
        batch = InputBatch(context.max_num_seqs, longest, context.block_size, config.eos_token_ids)
        runner = ModelRunner(model, batch, device, shard=shard, communicator=communicator)
        return cls(runner, dtype, device, _largest_step(context, longest))

    @property
    def info(self) -> RankInfo:
        page_sizes = dict.fromkeys(self._runner.layer_names, self._runner.page_size_bytes)
        return RankInfo(str(self._dtype).removeprefix("torch."), str(self._device), page_sizes)

    def measure_free_memory(self) -> int:
        """On CUDA, the bytes left after a pass over the largest step, which stays reserved."""
        if self._device.type == "cuda":
            self._runner.initialize_kv_cache(1)
            self._runner.dummy_run(self._largest_step)
        return free_memory(self._device)

    def initialize_kv_cache(self, num_blocks: int) -> None:
        self._runner.initialize_kv_cache(num_blocks)
        self._runner.dummy_run([1])

    def execute_model(self, plan: SchedulerOutput) -> ModelRunnerOutput | None:
        return self._runner.execute_model(plan)

    def sample_tokens(self, step: int) -> ModelRunnerOutput | None:
        return self._runner.sample_tokens(step)

    def fill_tokens(self, step: int, token_ids: list[int]) -> None:
        self._runner.fill_tokens(step, token_ids)

    def call(self, method: str, args: Sequence[Any]) -> Any:
        if method not in REMOTE_METHODS:
            raise AttributeError(f"the model runner offers no method {method!r}; it offers {', '.join(REMOTE_METHODS)}")
        return getattr(self._runner, method)(*args)

    def shutdown(self) -> None:
        self._runner.shutdown()


def _build_model(name: str, context: ModelContext, catalog: Catalog) -> Model:
    architecture = context.config.architecture
    supported = [component.name for component in catalog.components("model")]
    if architecture not in supported:
        raise ModelError(
            f"architecture {architecture!r} of model {name!r} is not supported; supported are: {', '.join(supported)}"
        )
    model: Model = catalog.build("model", architecture, context)
    return model


def _build_attention(needs: AttentionNeeds, catalog: Catalog) -> AttentionBackend:
    if (name := catalog.chosen("attention")) is None:
        raise ConfigurationError("no attention backend is chosen: set attention.use")
    backend: AttentionBackend = catalog.build("attention", name, AttentionContext(needs=needs, catalog=catalog))
    return backend


def _longest_request(context: ExecutorContext, config: ModelConfig) -> int:
    """Tokens of a request at most. Whether more may be asked for is the engine core's decision."""
    return min(context.max_model_len or config.max_position_embeddings, config.max_position_embeddings)


def _largest_step(context: ExecutorContext, longest: int) -> list[int]:
    """Lengths of prompts that fill a step."""
    count = min(context.max_num_seqs, -(-context.max_num_batched_tokens // longest))
    tokens = min(context.max_num_batched_tokens, count * longest)
    return [min(longest, tokens - number * longest) for number in range(count)]
