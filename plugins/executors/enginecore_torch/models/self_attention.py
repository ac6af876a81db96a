"""Grouped-query self-attention with rotary embeddings, and optional norms on heads."""

from typing import Any

import torch

from enginecore_torch.attention.interface import AttentionBackend
from enginecore_torch.models.interface import ModelContext
from enginecore_torch.models.linear import Linear
from enginecore_torch.models.norm import RMSNorm
from enginecore_torch.models.weights import Axis, CheckpointTensor


class SelfAttention:
    """Query, key and value in one product, the rotary embedding, attention, and the output."""

    def __init__(
        self,
        context: ModelContext,
        name: str,
        attention: AttentionBackend,
        rotary: torch.Tensor,
        *,
        bias: bool = False,
        output_bias: bool = False,
        head_norms: bool = False,
    ) -> None:
        """Lay out one layer's attention.

        Args:
            context: The context of the model.
            name: Prefix of the layer's attention in the checkpoint, e.g.
                "model.layers.0.self_attn".
            attention: The backend.
            rotary: The table of `rotary_table`.
            bias: Whether query, key and value have biases.
            output_bias: Whether the output has one.
            head_norms: Whether each head of queries and keys is normed before the rotary embedding.
        """
        config, shard = context.config, context.shard
        self._attention, self._rotary, self._ops = attention, rotary, context.ops
        self._num_heads, self._num_kv_heads = len(shard.query_heads), len(shard.kv_heads)
        self._head_dim, self._eps, self._name = config.head_dim, config.rms_norm_eps, name
        hidden = Axis.whole(config.hidden_size)
        query = Axis(config.num_attention_heads, shard.query_heads).times(config.head_dim)
        key = Axis(config.num_key_value_heads, shard.kv_heads).times(config.head_dim)
        parts = {f"{name}.q_proj": query, f"{name}.k_proj": key, f"{name}.v_proj": key}
        self._qkv = Linear(context, hidden, parts, bias=bias)
        self._output = Linear(context, query, {f"{name}.o_proj": hidden}, bias=output_bias)
        norms = ("q_norm", "k_norm") if head_norms else ()
        self._head_norms = [RMSNorm(context, f"{name}.{norm}", config.head_dim) for norm in norms]

    @property
    def tensors(self) -> dict[str, CheckpointTensor]:
        """The checkpoint's tensors."""
        # older checkpoints carry the frequencies, which follow from the configuration
        frequencies = CheckpointTensor((Axis.whole(self._head_dim // 2),), None, optional=True)
        found = {f"{self._name}.rotary_emb.inv_freq": frequencies}
        for norm in self._head_norms:
            found |= norm.tensors
        return found | self._qkv.tensors | self._output.tensors

    def attend(self, x: torch.Tensor, positions: torch.Tensor, kv_cache: Any, metadata: Any) -> torch.Tensor:
        """[tokens, hidden] to [tokens, query features on this rank]; writes keys and values."""
        heads, kv_heads = self._num_heads, self._num_kv_heads
        qkv = self._qkv(x).view(x.shape[0], heads + 2 * kv_heads, self._head_dim)
        query, key, value = torch.split_with_sizes(qkv, [heads, kv_heads, kv_heads], dim=1)
        for norm, part in zip(self._head_norms, (query, key), strict=False):
            # the reshaped rows of a single head are a view with gaps
            rows = part.reshape(-1, self._head_dim).contiguous()
            part.copy_(self._ops.rms_norm(rows, norm.weight, self._eps).view(part.shape))
        self._ops.rotate(qkv[:, : heads + kv_heads], positions, self._rotary)
        return self._attention.forward(query, key, value, kv_cache, metadata)

    def project(self, attended: torch.Tensor) -> torch.Tensor:
        """[tokens, query features on this rank] to this rank's summand of [tokens, hidden]."""
        return self._output(attended)
