"""A decoder of pre-norm layers, from which architectures are made."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from enginecore_torch.attention.interface import AttentionBackend, AttentionNeeds
from enginecore_torch.models.embedding import EmbeddingAndHead
from enginecore_torch.models.interface import Model, ModelContext
from enginecore_torch.models.norm import RMSNorm
from enginecore_torch.models.rotary import rotary_table
from enginecore_torch.models.self_attention import SelfAttention
from enginecore_torch.models.weights import CheckpointTensor, unread


class FeedForward(Protocol):
    """The part of a layer that follows attention."""

    @property
    def tensors(self) -> dict[str, CheckpointTensor]:
        """The checkpoint's tensors."""
        ...

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, hidden] to this rank's summand of [tokens, hidden]."""
        ...


class DecoderLayer:
    """Attention and MLP, each after a norm.

    Attributes:
        name: In the checkpoint, and of the KV cache.
    """

    def __init__(self, context: ModelContext, name: str, self_attention: SelfAttention, mlp: FeedForward) -> None:
        self.name = name
        self.input_norm = RMSNorm(context, f"{name}.input_layernorm", context.config.hidden_size)
        self.self_attention = self_attention
        self.mlp_norm = RMSNorm(context, f"{name}.post_attention_layernorm", context.config.hidden_size)
        self.mlp = mlp

    @property
    def tensors(self) -> dict[str, CheckpointTensor]:
        """The checkpoint's tensors."""
        return self.input_norm.tensors | self.self_attention.tensors | self.mlp_norm.tensors | self.mlp.tensors


class Decoder(Model):
    """Embedding, layers, final norm and head under Hugging Face's names.

    An architecture says what a layer is made of.

    Attributes:
        context: The context of the model.
        config: The model's configuration.
        rotary: The table of the rotary embedding: float32 [positions, head_dim].

    Raises:
        ModelError: the configuration asks for something that is not supported.
    """

    def __init__(self, context: ModelContext) -> None:
        self.context, self.config = context, context.config
        self._shard, self._ops = context.shard, context.ops
        self._all_reduce = context.communicator.all_reduce
        self._attention = context.new_attention(self.attention_needs)
        self.rotary = rotary_table(
            self.config.head_dim, context.num_positions, self.config.rope_theta, self.config.rope_scaling,
            context.device,
        )  # fmt: skip
        self._layers = [self._new_layer(number) for number in self._shard.layers]
        self._final_norm = RMSNorm(context, "model.norm", self.config.hidden_size)
        self._ends = EmbeddingAndHead(context)

    # -- what an architecture says -----------------------------------------------------------------

    @abstractmethod
    def new_self_attention(self, name: str) -> SelfAttention:
        """The attention of one layer; `name` as `SelfAttention` takes it."""

    @abstractmethod
    def new_mlp(self, name: str) -> FeedForward:
        """The MLP of one layer; `name` as `GatedMLP` takes it."""

    @property
    def attention_needs(self) -> AttentionNeeds:
        """What the layers need of attention."""
        return AttentionNeeds(
            num_heads=len(self._shard.query_heads),
            num_kv_heads=len(self._shard.kv_heads),
            head_dim=self.config.head_dim,
            block_size=self.context.block_size,
            dtype=self.context.dtype,
            device=self.context.device,
        )

    # -- the model interface -----------------------------------------------------------------------

    def _new_layer(self, number: int) -> DecoderLayer:
        name = f"model.layers.{number}"
        attention, mlp = self.new_self_attention(f"{name}.self_attn"), self.new_mlp(f"{name}.mlp")
        return DecoderLayer(self.context, name, attention, mlp)

    @property
    def attention(self) -> AttentionBackend:
        return self._attention

    @property
    def layer_names(self) -> tuple[str, ...]:
        return tuple(layer.name for layer in self._layers)

    @property
    def tensors(self) -> Mapping[str, CheckpointTensor]:
        norm = self._final_norm.tensors
        found = self._ends.tensors | (norm if self._shard.is_last else unread(norm))
        for number in range(self.config.num_hidden_layers):
            if number in self._shard.layers:
                found |= self._layers[number - self._shard.layers.start].tensors
            else:
                found |= unread(self._new_layer(number).tensors)
        return found

    def new_hidden(self, num_tokens: int) -> torch.Tensor:
        shape = (num_tokens, self.config.hidden_size)
        return torch.empty(shape, dtype=self.context.dtype, device=self.context.device)

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        return self._ends.embed(token_ids)

    def forward(
        self,
        residual: torch.Tensor,
        positions: torch.Tensor,
        kv_caches: Sequence[Any],
        metadata: Any,
        wanted: torch.Tensor,
    ) -> torch.Tensor:
        ops, eps = self._ops, self.config.rms_norm_eps
        x = ops.rms_norm(residual, self._layers[0].input_norm.weight, eps)
        last = self._final_norm if self._shard.is_last else None
        norms = [*(layer.input_norm for layer in self._layers[1:]), last]
        for layer, kv_cache, next_norm in zip(self._layers, kv_caches, norms, strict=True):
            x = layer.self_attention.attend(x, positions, kv_cache, metadata)
            if next_norm is not None and next_norm is last:  # other tokens are not read any more
                x, residual = x[wanted], residual[wanted]
            x = self._summed(layer.self_attention.project(x))
            x = ops.add_rms_norm(x, residual, layer.mlp_norm.weight, eps)
            x = self._summed(layer.mlp(x))
            if next_norm is None:
                return residual.add_(x)
            x = ops.add_rms_norm(x, residual, next_norm.weight, eps)
        return x

    def _summed(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over the ranks of the stage."""
        self._all_reduce(x)
        return x

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._ends.compute_logits(hidden)
