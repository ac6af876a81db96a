"""Shapes of well-known models, as their config.json says them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


def _config(
    layers: int, heads: int, kv_heads: int, hidden: int, intermediate: int, vocab: int, context: int, **more: Any
) -> Mapping[str, Any]:
    config: dict[str, Any] = {
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "vocab_size": vocab,
        "max_position_embeddings": context,
        "dtype": "bfloat16",
        **more,
    }
    return MappingProxyType(config)


PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "smollm2-135m": _config(30, 9, 3, 576, 1536, 49_152, 8192, tie_word_embeddings=True),
        "llama-2-7b": _config(32, 32, 32, 4096, 11_008, 32_000, 4096),
        "llama-2-13b": _config(40, 40, 40, 5120, 13_824, 32_000, 4096),
        "llama-2-70b": _config(80, 64, 8, 8192, 28_672, 32_000, 4096),
        "llama-3-8b": _config(32, 32, 8, 4096, 14_336, 128_256, 8192),
        "llama-3-70b": _config(80, 64, 8, 8192, 28_672, 128_256, 8192),
        "llama-3.1-8b": _config(32, 32, 8, 4096, 14_336, 128_256, 131_072),
        "llama-3.1-70b": _config(80, 64, 8, 8192, 28_672, 128_256, 131_072),
        "mistral-7b": _config(32, 32, 8, 4096, 14_336, 32_768, 32_768),
        "mixtral-8x7b": _config(
            32, 32, 8, 4096, 14_336, 32_000, 32_768, num_local_experts=8, num_experts_per_tok=2
        ),
        "qwen2.5-0.5b": _config(24, 14, 2, 896, 4864, 151_936, 32_768, tie_word_embeddings=True),
        "qwen2.5-7b": _config(28, 28, 4, 3584, 18_944, 152_064, 32_768),
        "qwen2.5-32b": _config(64, 40, 8, 5120, 27_648, 152_064, 32_768),
        "qwen2.5-72b": _config(80, 64, 8, 8192, 29_568, 152_064, 32_768),
        "qwen3-8b": _config(36, 32, 8, 4096, 12_288, 151_936, 40_960, head_dim=128),
        "qwen3-30b-a3b": _config(
            48, 32, 4, 2048, 6144, 151_936, 40_960, head_dim=128,
            num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768,
        ),
    }
)  # fmt: skip
"""By the name that people call them, in lower case."""
