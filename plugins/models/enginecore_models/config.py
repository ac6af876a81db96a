"""ModelConfig: the configuration of a model, the same for folders and GGUF files."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from enginecore.errors import ModelError

CONFIG_FILE = "config.json"
GENERATION_CONFIG_FILE = "generation_config.json"
POSITIVE_ROPE_PARAMETERS = {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}
"""Divisors of every rotary embedding that has them."""

T = TypeVar("T")
Count = Annotated[int, msgspec.Meta(gt=0)]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A decoder's configuration. Names are those of Hugging Face's config.json.

    Attributes:
        architecture: Class name, e.g. "LlamaForCausalLM". The executor decides whether it can be
            run.
        hidden_size: Width of the residual stream.
        intermediate_size: Width of the MLP.
        num_hidden_layers: Decoder layers.
        num_attention_heads: Query heads.
        num_key_value_heads: Key and value heads; divides the query heads.
        head_dim: Width of a head.
        vocab_size: Rows of the embedding; token ids are below this.
        max_position_embeddings: The longest context that the model was made for, in tokens.
        rms_norm_eps: Added to the mean square before the root.
        rope_theta: Base of the rotary embedding.
        rope_scaling: Parameters of a rotary embedding that is not the plain one, with its
            "rope_type"; None: plain.
        tie_word_embeddings: The output projection is the embedding; there is no `lm_head.weight`.
        attention_bias: The attention projections have biases.
        mlp_bias: The MLP projections have biases.
        hidden_act: Activation of the MLP, e.g. "silu".
        dtype: What the weights are stored in: "float32", "bfloat16" or "float16". For a quantised
            GGUF "bfloat16".
        eos_token_ids: Tokens with which the model ends its output; may be empty.
        bos_token_id: The token that begins a text, if the model names one.
        fields: All of config.json, for architectures that need more of it.
    """

    architecture: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: Mapping[str, Any] | None
    tie_word_embeddings: bool
    attention_bias: bool
    mlp_bias: bool
    hidden_act: str
    dtype: str
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None
    fields: Mapping[str, Any] = field(default_factory=dict)


class _Generation(msgspec.Struct):
    """What is read of generation_config.json."""

    eos_token_id: int | list[int] | None = None


class _ConfigFile(msgspec.Struct):
    """The fields of config.json that all models have.

    Defaults are those of transformers, where older files leave a field out.
    """

    hidden_size: Count
    intermediate_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    vocab_size: Count
    max_position_embeddings: Count
    rms_norm_eps: float
    hidden_act: str
    architectures: Annotated[list[str], msgspec.Meta(min_length=1)]
    num_key_value_heads: Count | None = None
    head_dim: Count | None = None
    rope_theta: float | None = None
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None  # transformers 5 put both of the above here
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    eos_token_id: int | list[int] | None = None
    bos_token_id: int | None = None
    dtype: str | None = None
    quantization_config: dict[str, Any] | None = None


def read_config(folder: Path, dtype: str | None = None) -> ModelConfig:
    """The configuration of a Hugging Face folder.

    Args:
        folder: Holds config.json and perhaps generation_config.json.
        dtype: What the weights are stored in, which the files themselves know best; None: what
            config.json says.

    Raises:
        ModelError: config.json or generation_config.json is missing or broken, or a field of theirs
            is missing or wrong; names file, field and value.
    """
    file = folder / CONFIG_FILE
    raw = _decode(file, _ConfigFile)
    _check(raw, file)
    generation_file = folder / GENERATION_CONFIG_FILE
    generation = _decode(generation_file, _Generation) if generation_file.exists() else _Generation()
    rope_theta, rope_scaling = _rope(raw, file)
    # as transformers does, the generation config is preferred
    eos = raw.eos_token_id if generation.eos_token_id is None else generation.eos_token_id
    return ModelConfig(
        architecture=raw.architectures[0],
        hidden_size=raw.hidden_size,
        intermediate_size=raw.intermediate_size,
        num_hidden_layers=raw.num_hidden_layers,
        num_attention_heads=raw.num_attention_heads,
        num_key_value_heads=raw.num_key_value_heads or raw.num_attention_heads,
        head_dim=raw.head_dim or raw.hidden_size // raw.num_attention_heads,
        vocab_size=raw.vocab_size,
        max_position_embeddings=raw.max_position_embeddings,
        rms_norm_eps=raw.rms_norm_eps,
        rope_theta=rope_theta,
        rope_scaling=rope_scaling,
        tie_word_embeddings=raw.tie_word_embeddings,
        attention_bias=raw.attention_bias,
        mlp_bias=raw.mlp_bias,
        hidden_act=raw.hidden_act,
        dtype=dtype or raw.dtype or "float32",
        eos_token_ids=() if eos is None else (eos,) if isinstance(eos, int) else tuple(eos),
        bos_token_id=raw.bos_token_id,
        fields=_decode(file, dict[str, Any]),
    )


def _decode(file: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except FileNotFoundError as error:
        raise ModelError(f"{file} is missing: a model folder holds {CONFIG_FILE}, tokenizer and weights") from error
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"{file} cannot be used: {error}") from error


def _check(raw: _ConfigFile, file: Path) -> None:
    if raw.quantization_config is not None:
        method = raw.quantization_config.get("quant_method", "of unknown method")
        raise ModelError(
            f"{file}: quantised weights ({method}) are not supported; use the unquantised model or a GGUF file"
        )
    _check_positive("rms_norm_eps", raw.rms_norm_eps, file)
    heads, kv_heads = raw.num_attention_heads, raw.num_key_value_heads or raw.num_attention_heads
    if heads % kv_heads:
        raise ModelError(f"{file}: num_key_value_heads = {kv_heads} does not divide num_attention_heads = {heads}")
    if raw.head_dim is None and raw.hidden_size % heads:
        raise ModelError(
            f"{file}: head_dim is missing and num_attention_heads = {heads} does not divide hidden_size = "
            f"{raw.hidden_size}"
        )


def _rope(raw: _ConfigFile, file: Path) -> tuple[float, dict[str, Any] | None]:
    """Base and scaling, from either place. None is the plain rotary embedding."""
    parameters = dict(raw.rope_parameters or raw.rope_scaling or {})
    theta = parameters.pop("rope_theta", 10000.0 if raw.rope_theta is None else raw.rope_theta)
    _check_positive("rope_theta", theta, file)
    rope_type = parameters.pop("rope_type", None) or parameters.pop("type", None) or "default"
    parameters.pop("type", None)  # older files name the type twice
    for name in parameters.keys() & POSITIVE_ROPE_PARAMETERS:
        _check_positive(name, parameters[name], file)
    low, high = parameters.get("low_freq_factor"), parameters.get("high_freq_factor")
    if low is not None and high is not None and high <= low:
        raise ModelError(f"{file}: high_freq_factor must be above low_freq_factor = {low}, got {high}")
    if rope_type == "default" and not parameters:
        return float(theta), None
    return float(theta), {"rope_type": rope_type, **parameters}


def _check_positive(name: str, value: object, file: Path) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        raise ModelError(f"{file}: {name} must be a number above 0, got {value!r:.100}")
