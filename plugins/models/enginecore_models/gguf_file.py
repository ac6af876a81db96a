"""A GGUF file, read with the `gguf` package: configuration and weights under Hugging Face's names.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize

from enginecore.errors import ModelError
from enginecore_models.checkpoint import PartOf, everything

if TYPE_CHECKING:
    import torch

# general.architecture -> Hugging Face's class. Mistral and SmolLM call themselves "llama" too.
ARCHITECTURES = {"llama": "LlamaForCausalLM"}

_TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

# Llama 3's rotary embedding: by how much each frequency is divided
_ROPE_FACTORS = "rope_freqs.weight"

# what llama.cpp's converter keeps in a file whose weights are not quantised; the rest is best run
# in bfloat16
_NATIVE_DTYPES = {GGMLQuantizationType.F32: "float32", GGMLQuantizationType.F16: "float16"}


class _PlainGGUFReader(GGUFReader):  # type: ignore[misc]
    """Slices a plain array: three times as fast as numpy's memmap objects, and just as lazy."""

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        return self._plain

    @data.setter
    def data(self, mapped: npt.NDArray[np.uint8]) -> None:
        self._plain = np.asarray(mapped)


class GGUFFile:
    """One memory-mapped GGUF file.

    Raises:
        ModelError: not a GGUF file, truncated, or of an architecture or tensor type that is not
            supported.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._reader = _PlainGGUFReader(path)
        # the reader checks nothing but the magic: what else it meets in a damaged file is any of
        # these
        except (ValueError, IndexError, KeyError, TypeError, OverflowError, OSError, MemoryError) as error:
            raise ModelError(
                f"{path} ({path.stat().st_size} bytes) is truncated or not a GGUF file that can be read ({error}): "
                "download it again"
            ) from error
        self._architecture = self._metadata("general.architecture")
        if self._architecture not in ARCHITECTURES:
            raise ModelError(
                f"{path}: GGUF architecture {self._architecture!r} is not supported; supported: "
                f"{', '.join(ARCHITECTURES)}. Use the model's Hugging Face folder instead"
            )
        tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        self._rope_factors = tensors.pop(_ROPE_FACTORS, None)
        self._tensors = {self._hf_name(name): tensor for name, tensor in tensors.items()}

    def config(self) -> dict[str, Any]:
        """The contents of a Hugging Face config.json."""
        heads = self._of_architecture("attention.head_count")
        hidden_size = self._of_architecture("embedding_length")
        eos = [self._metadata(f"tokenizer.ggml.{name}_token_id", None) for name in ("eos", "eot")]
        head_dim = self._of_architecture("attention.key_length", hidden_size // heads)
        rope_theta = self._of_architecture("rope.freq_base", 10000.0)
        self._check_rope(head_dim)
        return {
            "architectures": [ARCHITECTURES[self._architecture]],
            "model_type": self._architecture,
            "hidden_size": hidden_size,
            "intermediate_size": self._of_architecture("feed_forward_length"),
            "num_hidden_layers": self._of_architecture("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self._of_architecture("attention.head_count_kv", heads),
            "head_dim": head_dim,
            "vocab_size": self.shape("model.embed_tokens.weight")[0],
            "max_position_embeddings": self._of_architecture("context_length"),
            "rms_norm_eps": self._of_architecture("attention.layer_norm_rms_epsilon"),
            "rope_theta": rope_theta,
            "rope_scaling": self._rope_scaling(rope_theta),
            "tie_word_embeddings": "lm_head.weight" not in self._tensors,
            "attention_bias": "model.layers.0.self_attn.q_proj.bias" in self._tensors,
            "mlp_bias": "model.layers.0.mlp.up_proj.bias" in self._tensors,
            "hidden_act": "silu",
            "dtype": self._dtype,
            "eos_token_id": list(dict.fromkeys(token for token in eos if token is not None)) or None,
            "bos_token_id": self._metadata("tokenizer.ggml.bos_token_id", None),
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Weights in the order of the file, by Hugging Face's names."""
        return tuple(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a weight as torch has it: GGUF names the innermost dimension first."""
        if name not in self._tensors:
            raise ModelError(f"{self._path} holds no {name!r}, nor what it is called in GGUF: download it again")
        return tuple(int(size) for size in reversed(self._tensors[name].shape))

    def weights(self, dtype: "torch.dtype", part_of: PartOf = everything) -> "Iterator[tuple[str, torch.Tensor]]":
        """The wanted part of each weight, dequantised, in Hugging Face's layout, as `dtype`."""
        import torch

        heads = self._of_architecture("attention.head_count")
        kv_heads = self._of_architecture("attention.head_count_kv", heads)
        for name, tensor in self._tensors.items():
            part = part_of(name, self.shape(name))
            if part is None:
                continue
            try:
                values = dequantize(tensor.data, tensor.tensor_type)
            except NotImplementedError as error:
                raise ModelError(
                    f"{self._path}: {tensor.name!r} is stored as {tensor.tensor_type.name}, which the gguf package "
                    "cannot dequantise; use a file in another quantisation, e.g. Q8_0 or Q4_K_M"
                ) from error
            if ".q_proj." in name:
                values = _unpermute(values, heads)
            elif ".k_proj." in name:
                values = _unpermute(values, kv_heads)
            values = values[part]
            # astype copies: the mapped file is read-only, which torch tensors cannot be
            yield name, torch.from_numpy(values.astype("float32", copy=not values.flags.writeable)).to(dtype)

    @property
    def _dtype(self) -> str:
        largest = max(self._reader.tensors, key=lambda tensor: int(tensor.n_elements))
        return _NATIVE_DTYPES.get(largest.tensor_type, "bfloat16")

    def _metadata(self, key: str, *default: Any) -> Any:
        field = self._reader.get_field(key)
        if field is not None:
            return field.contents()
        if default:
            return default[0]
        raise ModelError(f"{self._path} has no metadata {key!r}, so it cannot be loaded: convert the model again")

    def _of_architecture(self, key: str, *default: Any) -> Any:
        return self._metadata(f"{self._architecture}.{key}", *default)

    def _hf_name(self, name: str) -> str:
        stem, _, suffix = name.rpartition(".")
        mapped = _TENSORS.get(stem)
        if stem.startswith("blk."):
            _, layer, kind = stem.split(".", 2)
            mapped = f"model.layers.{layer}.{_LAYER_TENSORS[kind]}" if kind in _LAYER_TENSORS else None
        if mapped is None or suffix not in ("weight", "bias"):
            raise ModelError(
                f"{self._path}: tensor {name!r} does not belong to a {ARCHITECTURES[self._architecture]}, so the file "
                "needs what is not supported; use the model's Hugging Face folder instead"
            )
        return f"{mapped}.{suffix}"

    def _check_rope(self, head_dim: int) -> None:
        rotated = self._of_architecture("rope.dimension_count", head_dim)
        if rotated != head_dim:
            raise ModelError(
                f"{self._path}: rope.dimension_count = {rotated} of head_dim = {head_dim}: a rotary embedding of a "
                "part of the head is not supported"
            )

    def _rope_scaling(self, rope_theta: float) -> dict[str, Any] | None:
        if self._rope_factors is not None:
            scaling = _llama3_scaling(self._rope_factors.data, rope_theta)
            if scaling is None:
                raise ModelError(
                    f"{self._path}: the factors in {_ROPE_FACTORS!r} are not those of Llama 3, and others are not "
                    "supported; use the model's Hugging Face folder instead"
                )
            return scaling
        kind = self._of_architecture("rope.scaling.type", "none")
        if kind == "none":
            return None
        scaling = {"rope_type": kind, "factor": self._of_architecture("rope.scaling.factor")}
        original = self._of_architecture("rope.scaling.original_context_length", None)
        return scaling if original is None else {**scaling, "original_max_position_embeddings": original}


def _llama3_scaling(factors: npt.NDArray[np.float32], rope_theta: float) -> dict[str, Any] | None:
    """The parameters from which a converter computed these factors, None if they are not Llama 3's.

    GGUF keeps the result only. All releases of Llama 3 differ in the largest factor alone, which
    the slowest frequency shows; the others are verified. Shape of the factors: (head_dim / 2,).
    """
    low, high, original = 1.0, 4.0, 8192
    factor = float(factors.max())
    frequencies = rope_theta ** -(np.arange(len(factors)) / len(factors))
    # turns of each frequency within the original context
    turns = original * frequencies / (2 * np.pi)
    kept = ((turns - low) / (high - low)).clip(0, 1)
    if not np.allclose(factors, 1 / (kept + (1 - kept) / factor), rtol=1e-3):
        return None
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": original,
    }


def _unpermute(values: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Undo llama.cpp's order of query and key rows, which interleaves the halves of a head.

    Shape: (heads * head_dim, ...), unchanged.
    """
    pairs = values.reshape(heads, values.shape[0] // heads // 2, 2, *values.shape[1:])
    return pairs.swapaxes(1, 2).reshape(values.shape)
