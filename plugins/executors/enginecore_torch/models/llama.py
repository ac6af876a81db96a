"""Decoder of the Llama architecture: RMSNorm, rotary embeddings, grouped-query attention, gated SiLU MLP."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from enginecore.errors import ModelError
from enginecore_models.config import ModelConfig
from enginecore_torch.attention.interface import AttentionBackend
from enginecore_torch.models.linear import Linear
from enginecore_torch.models.rotary import rotary_table
from enginecore_torch.models.weights import Target
from enginecore_torch.ops.interface import Ops
from enginecore_torch.parallel.communicator import Communicator
from enginecore_torch.parallel.layout import Shard

Load = Callable[[torch.Tensor], object]


class _Norm:
    """Weight of one RMSNorm."""

    def __init__(self, size: int, dtype: torch.dtype, device: torch.device) -> None:
        self.weight = torch.empty(size, dtype=dtype, device=device)


class _Layer:
    """Weights of one decoder layer; query, key and value share one product, gate and up another."""

    def __init__(self, config: ModelConfig, shard: Shard, dtype: torch.dtype, device: torch.device) -> None:
        hidden, inner = config.hidden_size, len(shard.inner)
        query, key = (len(heads) * config.head_dim for heads in (shard.query_heads, shard.kv_heads))

        def linear(inputs: int, outputs: Sequence[int], bias: bool) -> Linear:
            return Linear(inputs, outputs, bias=bias, dtype=dtype, device=device)

        self.input_norm = _Norm(hidden, dtype, device)
        self.qkv = linear(hidden, (query, key, key), config.attention_bias)
        self.output = linear(query, (hidden,), config.attention_bias and shard.leads)
        self.mlp_norm = _Norm(hidden, dtype, device)
        self.gate_up = linear(hidden, (inner, inner), config.mlp_bias)
        self.down = linear(inner, (hidden,), config.mlp_bias and shard.leads)

    @property
    def loads(self) -> dict[str, Load]:
        """What takes the checkpoint's tensors of this layer, by their names within it."""
        found: dict[str, Load] = {
            "input_layernorm.weight": self.input_norm.weight.copy_,
            "post_attention_layernorm.weight": self.mlp_norm.weight.copy_,
        }
        for linear, names in (
            (self.qkv, ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
            (self.output, ("self_attn.o_proj",)),
            (self.gate_up, ("mlp.gate_proj", "mlp.up_proj")),
            (self.down, ("mlp.down_proj",)),
        ):
            for number, name in enumerate(names):
                found[f"{name}.weight"] = partial(linear.load_weight, number)
                if linear.has_bias:
                    found[f"{name}.bias"] = partial(linear.load_bias, number)
        return found


def _layer_tensors(config: ModelConfig, shard: Shard) -> dict[str, tuple[tuple[int, ...], tuple[slice, ...]]]:
    """The checkpoint's tensors of one layer by their names within it: whole shape, and the part that a rank holds."""
    hidden, head_dim = config.hidden_size, config.head_dim
    whole = (hidden, slice(None))
    query = (config.num_attention_heads * head_dim, _slice(shard.query_heads, head_dim))
    key = (config.num_key_value_heads * head_dim, _slice(shard.kv_heads, head_dim))
    inner = (config.intermediate_size, _slice(shard.inner))
    found: dict[str, tuple[tuple[int, ...], tuple[slice, ...]]] = {
        "input_layernorm.weight": ((hidden,), ()),
        "post_attention_layernorm.weight": ((hidden,), ()),
    }
    for name, outputs, inputs, has_bias in (
        ("self_attn.q_proj", query, whole, config.attention_bias),
        ("self_attn.k_proj", key, whole, config.attention_bias),
        ("self_attn.v_proj", key, whole, config.attention_bias),
        ("self_attn.o_proj", whole, query, config.attention_bias),
        ("mlp.gate_proj", inner, whole, config.mlp_bias),
        ("mlp.up_proj", inner, whole, config.mlp_bias),
        ("mlp.down_proj", whole, inner, config.mlp_bias),
    ):
        found[f"{name}.weight"] = (outputs[0], inputs[0]), (outputs[1], inputs[1])
        if has_bias:
            found[f"{name}.bias"] = (outputs[0],), (outputs[1],)
    return found


def _slice(held: range, size: int = 1) -> slice:
    return slice(held.start * size, held.stop * size)


class LlamaForCausalLM:
    """The model, or what one rank holds of it. Built without weights; `targets` says where they go.

    Raises:
        ModelError: the configuration asks for something that is not supported; named.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        shard: Shard,
        communicator: Communicator,
        ops: Ops,
        attention: AttentionBackend,
        num_positions: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        if config.hidden_act != "silu":
            raise ModelError(f"hidden_act {config.hidden_act!r} is not supported by Llama models here; 'silu' is")
        self._config, self._shard, self._ops, self._attention = config, shard, ops, attention
        self._dtype, self._device = dtype, device
        self._all_reduce = communicator.all_reduce
        self._table = rotary_table(config.head_dim, num_positions, config.rope_theta, config.rope_scaling, device)
        self._layers = [_Layer(config, shard, dtype, device) for _ in shard.layers]
        if shard.is_first:
            self._embedding = torch.empty((len(shard.vocab), config.hidden_size), dtype=dtype, device=device)
        if shard.is_last:
            self._final_norm = _Norm(config.hidden_size, dtype, device)
            self._head = Linear(config.hidden_size, (len(shard.vocab),), bias=False, dtype=dtype, device=device)

    @property
    def layer_names(self) -> tuple[str, ...]:
        """Names of the layers here that have a KV cache, in order."""
        return tuple(map(_layer_name, self._shard.layers))

    @property
    def targets(self) -> Mapping[str, Target]:
        """Where the checkpoint's tensors go, by their Hugging Face names; those of other ranks are named too."""
        config, shard = self._config, self._shard
        table, rows = (config.vocab_size, config.hidden_size), (_slice(shard.vocab),)
        tied = config.tie_word_embeddings
        found = {
            "model.embed_tokens.weight": Target(table, self._embedding_load(), rows),
            "model.norm.weight": Target(
                (config.hidden_size,), self._final_norm.weight.copy_ if shard.is_last else None
            ),
            # tied checkpoints may repeat the table under this name
            "lm_head.weight": Target(
                table, partial(self._head.load_weight, 0) if shard.is_last and not tied else None, rows, optional=tied
            ),
        }
        tensors = _layer_tensors(config, shard)
        for number in range(config.num_hidden_layers):
            held = number in shard.layers
            loads = self._layers[number - shard.layers.start].loads if held else {}
            prefix = _layer_name(number)
            for name, (shape, part) in tensors.items():
                found[f"{prefix}.{name}"] = Target(shape, loads.get(name), part)
            # older checkpoints carry the frequencies, which follow from the configuration
            found[f"{prefix}.self_attn.rotary_emb.inv_freq"] = Target((config.head_dim // 2,), None, optional=True)
        return found

    def _embedding_load(self) -> Load | None:
        if self._shard.is_first:
            return self._load_embedding
        return partial(self._head.load_weight, 0) if self._shard.is_last and self._config.tie_word_embeddings else None

    def _load_embedding(self, tensor: torch.Tensor) -> None:
        self._embedding.copy_(tensor)
        if self._shard.is_last and self._config.tie_word_embeddings:
            self._head.use_weight(self._embedding)

    def new_hidden(self, num_tokens: int) -> torch.Tensor:
        """Room for what a stage takes in: [num_tokens, hidden], of whatever content."""
        return torch.empty((num_tokens, self._config.hidden_size), dtype=self._dtype, device=self._device)

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """What the first layer takes in: int64 [tokens] to [tokens, hidden]. On the first stage."""
        if not self._shard.is_shared:
            return functional.embedding(token_ids, self._embedding)
        rows = token_ids - self._shard.vocab.start
        here = (rows >= 0) & (rows < len(self._shard.vocab))
        return self._summed(functional.embedding(rows * here, self._embedding) * here.unsqueeze(-1))

    def forward(
        self,
        residual: torch.Tensor,
        positions: torch.Tensor,
        kv_caches: Sequence[Any],
        metadata: Any,
        wanted: torch.Tensor,
    ) -> torch.Tensor:
        """One step over a flat batch of tokens, through the layers that are here.

        residual: [tokens, hidden], overwritten; positions: int64 [tokens]; kv_caches: one per layer; metadata: of the
        attention backend; wanted: int64 [n], tokens whose hidden states are asked for. Returns [n, hidden], normed; on
        every stage but the last, what the next one takes in: [tokens, hidden].
        """
        ops, eps = self._ops, self._config.rms_norm_eps
        x = ops.rms_norm(residual, self._layers[0].input_norm.weight, eps)
        last = self._final_norm if self._shard.is_last else None
        norms = [*(layer.input_norm for layer in self._layers[1:]), last]
        for layer, kv_cache, next_norm in zip(self._layers, kv_caches, norms, strict=True):
            x = self._attend(layer, x, positions, kv_cache, metadata)
            if next_norm is not None and next_norm is last:  # nobody reads the other tokens any more
                x, residual = x[wanted], residual[wanted]
            x = ops.add_rms_norm(self._summed(layer.output(x)), residual, layer.mlp_norm.weight, eps)
            x = self._summed(layer.down(ops.silu_and_mul(layer.gate_up(x))))
            if next_norm is None:
                return residual.add_(x)
            x = ops.add_rms_norm(x, residual, next_norm.weight, eps)
        return x

    def _summed(self, x: torch.Tensor) -> torch.Tensor:
        """Each rank of the stage has one summand."""
        self._all_reduce(x)
        return x

    def _attend(
        self, layer: _Layer, x: torch.Tensor, positions: torch.Tensor, kv_cache: Any, metadata: Any
    ) -> torch.Tensor:
        heads, kv_heads = len(self._shard.query_heads), len(self._shard.kv_heads)
        qkv = layer.qkv(x).view(x.shape[0], heads + 2 * kv_heads, self._config.head_dim)
        self._ops.rotate(qkv[:, : heads + kv_heads], positions, self._table)
        query, key, value = torch.split_with_sizes(qkv, [heads, kv_heads, kv_heads], dim=1)
        return self._attention.forward(query, key, value, kv_cache, metadata)

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[n, hidden] to [n, rows of the vocabulary that are here]. On the last stage."""
        return self._head(hidden)


def _layer_name(number: int) -> str:
    return f"model.layers.{number}"
