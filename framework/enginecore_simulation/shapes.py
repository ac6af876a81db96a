"""Shapes of models: the numbers that speed and memory depend on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from enginecore.errors import ConfigurationError
from enginecore.registry.spelling import closest
from enginecore_simulation.presets import PRESETS

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder with gated MLPs, dense or a mixture of experts.

    Attributes:
        num_layers: Decoder layers.
        num_heads: Query heads.
        num_kv_heads: Key and value heads.
        head_dim: Width of a head.
        hidden_size: Width of the residual stream.
        intermediate_size: Width of the MLP, or of one expert.
        vocab_size: Rows of the embedding.
        max_position_embeddings: The longest context that the model was made for.
        dtype_bytes: Bytes of a weight, and of a number in the KV cache.
        tied: The output projection is the embedding.
        num_experts: Experts of a layer; 1: dense.
        active_experts: Experts that a token goes through.
        shared_intermediate_size: Width of the experts that every token goes through beside them.
    """

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    dtype_bytes: int = 2
    tied: bool = False
    num_experts: int = 1
    active_experts: int = 1
    shared_intermediate_size: int = 0

    @property
    def num_parameters(self) -> int:
        """All that lies in memory."""
        return self._parameters(self.num_experts)

    @property
    def num_active_parameters(self) -> int:
        """Parameters that one token goes through, the embedding counted whole."""
        return self._parameters(self.active_experts)

    @property
    def kv_bytes_per_layer_token(self) -> int:
        """Keys and values of one token in one layer."""
        return 2 * self.num_kv_heads * self.head_dim * self.dtype_bytes

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of one token in all layers."""
        return self.num_layers * self.kv_bytes_per_layer_token

    def with_dtype(self, dtype: str) -> "ModelShape":
        """With weights and KV cache of another type; "auto": as it is."""
        return self if dtype == "auto" else replace(self, dtype_bytes=DTYPE_BYTES[dtype])

    def _parameters(self, experts: int) -> int:
        attention = 2 * self.hidden_size * self.head_dim * (self.num_heads + self.num_kv_heads)
        mlp = 3 * self.hidden_size * (experts * self.intermediate_size + self.shared_intermediate_size)
        router = self.hidden_size * self.num_experts if self.num_experts > 1 else 0
        embeddings = (1 if self.tied else 2) * self.vocab_size * self.hidden_size
        return self.num_layers * (attention + mlp + router) + embeddings

    @classmethod
    def from_config(cls, config: Mapping[str, Any], origin: str = "the model's configuration") -> "ModelShape":
        """From what Hugging Face calls config.json.

        Raises:
            ConfigurationError: a field is missing or not a positive number; names it and `origin`.
        """
        read = _ConfigReader(config.get("text_config", config), origin)
        heads, hidden = read.count("num_attention_heads"), read.count("hidden_size")
        experts = read.count("num_local_experts", "num_experts", "n_routed_experts", default=1)
        mlp = ("moe_intermediate_size", "intermediate_size") if experts > 1 else ("intermediate_size",)
        width = read.count(*mlp)
        return cls(
            num_layers=read.count("num_hidden_layers"),
            num_heads=heads,
            num_kv_heads=read.count("num_key_value_heads", default=heads),
            head_dim=read.count("head_dim", default=max(hidden // heads, 1)),
            hidden_size=hidden,
            intermediate_size=width,
            vocab_size=read.count("vocab_size"),
            max_position_embeddings=read.count("max_position_embeddings"),
            dtype_bytes=read.dtype_bytes(),
            tied=bool(config.get("tie_word_embeddings", False)),
            num_experts=experts,
            active_experts=read.count("num_experts_per_tok") if experts > 1 else 1,
            shared_intermediate_size=read.count("shared_expert_intermediate_size", default=0)
            or width * read.count("n_shared_experts", default=0),
        )


class _ConfigReader:
    """Reads numbers, each with an error that says where it was missed."""

    def __init__(self, values: Mapping[str, Any], origin: str) -> None:
        self._values = values
        self._origin = origin

    def count(self, *names: str, default: int | None = None) -> int:
        """The first of these fields that is there."""
        name, value = next(((name, found) for name in names if (found := self._values.get(name)) is not None), ("", 0))
        if not name and default is not None:
            return default
        if not name:
            raise ConfigurationError(f"{self._origin} has no {' or '.join(names)}: a decoder's config.json has")
        if isinstance(value, bool) or not isinstance(value, int) or value < 0 or (not value and default != 0):
            raise ConfigurationError(f"{self._origin}: {name} must be an integer of at least 1, got {value!r:.100}")
        return value

    def dtype_bytes(self) -> int:
        """Bytes of a weight; 2 where nothing is said."""
        dtype = self._values.get("dtype") or self._values.get("torch_dtype") or "bfloat16"
        if dtype not in DTYPE_BYTES:
            raise ConfigurationError(
                f"{self._origin}: dtype must be one of {', '.join(DTYPE_BYTES)}, got {dtype!r:.100}"
            )
        return DTYPE_BYTES[dtype]


def close_presets(name: str) -> str:
    """The end of a sentence that asks whether a preset was meant that is spelt like `name`; empty if none is."""
    return closest(name.lower(), PRESETS)


def find_shape(name: str) -> ModelShape | None:
    """The shape that a preset's name, a config.json or a folder with one says; None if it is none of these.

    Raises:
        ConfigurationError: the file is there and cannot be used.
    """
    if (preset := PRESETS.get(name.lower())) is not None:
        return ModelShape.from_config(preset, name)
    path = Path(name).expanduser()
    file = path / "config.json" if path.is_dir() else path
    if file.suffix != ".json" or not file.exists():
        return None
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file} cannot be read as a model's configuration: {error}") from error
    if not isinstance(config, dict):
        raise ConfigurationError(f"{file} must hold an object, as config.json does, not a {type(config).__name__}")
    return ModelShape.from_config(config, str(file))
