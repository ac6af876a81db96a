"""Decoder of the Llama architecture: RMSNorm, rotary embeddings, grouped-query attention, gated SiLU MLP."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional

from enginecore.errors import ModelError
from enginecore_models.config import ModelConfig
from enginecore_torch.attention import AttentionBackend
from enginecore_torch.linear import Linear
from enginecore_torch.ops import Ops
from enginecore_torch.rotary import rotary_table
from enginecore_torch.weights import Target


class _Norm:
    """Weight of one RMSNorm."""

    def __init__(self, size: int, dtype: torch.dtype, device: torch.device) -> None:
        self.weight = torch.empty(size, dtype=dtype, device=device)

    @property
    def target(self) -> Target:
        return Target(tuple(self.weight.shape), self.weight.copy_)


class _Layer:
    """Weights of one decoder layer; query, key and value share one product, gate and up another."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        hidden, inner = config.hidden_size, config.intermediate_size
        query, key = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim

        def linear(inputs: int, outputs: Sequence[int], bias: bool) -> Linear:
            return Linear(inputs, outputs, bias=bias, dtype=dtype, device=device)

        self._num_frequencies = config.head_dim // 2
        self.input_norm = _Norm(hidden, dtype, device)
        self.qkv = linear(hidden, (query, key, key), config.attention_bias)
        self.output = linear(query, (hidden,), config.attention_bias)
        self.mlp_norm = _Norm(hidden, dtype, device)
        self.gate_up = linear(hidden, (inner, inner), config.mlp_bias)
        self.down = linear(inner, (hidden,), config.mlp_bias)

    def targets(self, prefix: str) -> dict[str, Target]:
        """Where the checkpoint's tensors of this layer go."""
        found = {
            f"{prefix}.input_layernorm.weight": self.input_norm.target,
            f"{prefix}.post_attention_layernorm.weight": self.mlp_norm.target,
            # older checkpoints carry the frequencies, which follow from the configuration
            f"{prefix}.self_attn.rotary_emb.inv_freq": Target((self._num_frequencies,), _ignore, optional=True),
        }
        for linear, block, parts in (
            (self.qkv, "self_attn", ("q_proj", "k_proj", "v_proj")),
            (self.output, "self_attn", ("o_proj",)),
            (self.gate_up, "mlp", ("gate_proj", "up_proj")),
            (self.down, "mlp", ("down_proj",)),
        ):
            for number, part in enumerate(parts):
                found.update(_linear_targets(linear, number, f"{prefix}.{block}.{part}"))
        return found


def _linear_targets(linear: Linear, part: int, prefix: str) -> dict[str, Target]:
    rows = linear.out_features[part]
    found = {f"{prefix}.weight": Target((rows, linear.in_features), lambda t: linear.load_weight(part, t))}
    if linear.has_bias:
        found[f"{prefix}.bias"] = Target((rows,), lambda t: linear.load_bias(part, t))
    return found


class LlamaForCausalLM:
    """The whole model. Built without weights; `targets` says where they go.

    Raises:
        ModelError: the configuration asks for something that is not supported; named.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        ops: Ops,
        attention: AttentionBackend,
        num_positions: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        if config.hidden_act != "silu":
            raise ModelError(f"hidden_act {config.hidden_act!r} is not supported by Llama models here; 'silu' is")
        self._config, self._ops, self._attention = config, ops, attention
        self._table = rotary_table(config.head_dim, num_positions, config.rope_theta, config.rope_scaling, device)
        self._embedding = torch.empty((config.vocab_size, config.hidden_size), dtype=dtype, device=device)
        self._layers = [_Layer(config, dtype, device) for _ in range(config.num_hidden_layers)]
        self._final_norm = _Norm(config.hidden_size, dtype, device)
        self._head = Linear(config.hidden_size, (config.vocab_size,), bias=False, dtype=dtype, device=device)

    @property
    def layer_names(self) -> tuple[str, ...]:
        """Names of the layers that have a KV cache, in order."""
        return tuple(f"model.layers.{number}" for number in range(len(self._layers)))

    @property
    def targets(self) -> Mapping[str, Target]:
        """Where the checkpoint's tensors go, by their Hugging Face names."""
        config = self._config
        table = (config.vocab_size, config.hidden_size)
        found = {
            "model.embed_tokens.weight": Target(table, self._load_embedding),
            "model.norm.weight": self._final_norm.target,
            # tied checkpoints may repeat the table under this name
            "lm_head.weight": Target(table, _ignore, optional=True)
            if config.tie_word_embeddings
            else Target(table, lambda tensor: self._head.load_weight(0, tensor)),
        }
        for name, layer in zip(self.layer_names, self._layers, strict=True):
            found.update(layer.targets(name))
        return found

    def _load_embedding(self, tensor: torch.Tensor) -> None:
        self._embedding.copy_(tensor)
        if self._config.tie_word_embeddings:
            self._head.use_weight(self._embedding)

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        kv_caches: Sequence[Any],
        metadata: Any,
        wanted: torch.Tensor,
    ) -> torch.Tensor:
        """One step over a flat batch of tokens.

        token_ids, positions: int64 [tokens]; kv_caches: one per layer; metadata: of the attention backend;
        wanted: int64 [n], tokens whose hidden states are asked for. Returns [n, hidden], normed.
        """
        ops, eps = self._ops, self._config.rms_norm_eps
        residual = functional.embedding(token_ids, self._embedding)
        x = ops.rms_norm(residual, self._layers[0].input_norm.weight, eps)
        norms = [layer.input_norm for layer in self._layers[1:]] + [self._final_norm]
        for layer, kv_cache, next_norm in zip(self._layers, kv_caches, norms, strict=True):
            x = self._attend(layer, x, positions, kv_cache, metadata)
            if next_norm is self._final_norm:  # nobody reads the other tokens any more
                x, residual = x[wanted], residual[wanted]
            x = ops.add_rms_norm(layer.output(x), residual, layer.mlp_norm.weight, eps)
            x = layer.down(ops.silu_and_mul(layer.gate_up(x)))
            x = ops.add_rms_norm(x, residual, next_norm.weight, eps)
        return x

    def _attend(
        self, layer: _Layer, x: torch.Tensor, positions: torch.Tensor, kv_cache: Any, metadata: Any
    ) -> torch.Tensor:
        heads, kv_heads = self._config.num_attention_heads, self._config.num_key_value_heads
        qkv = layer.qkv(x).view(x.shape[0], heads + 2 * kv_heads, self._config.head_dim)
        self._ops.rotate(qkv[:, : heads + kv_heads], positions, self._table)
        query, key, value = torch.split_with_sizes(qkv, [heads, kv_heads, kv_heads], dim=1)
        return self._attention.forward(query, key, value, kv_cache, metadata)

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[n, hidden] to [n, vocab_size]."""
        return self._head(hidden)


def _ignore(tensor: torch.Tensor) -> None:
    """For tensors that follow from others."""
