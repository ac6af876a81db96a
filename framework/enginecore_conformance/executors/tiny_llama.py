"""A random Llama on disk, for checks of executors: a step takes a millisecond."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

VOCAB, HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 211, 48, 88, 2, 6, 3, 8
LONGEST = 256
EOS = 2
SPREAD = 0.4
"""Standard deviation of the weights: so much that the likeliest token varies, and is so by more
than rounding.
"""
FLATNESS = 0.4
"""Weight of the last norm, which scales the logits: so low that at temperature 1 many tokens are
likely.
"""


def write_tiny_llama(folder: Path) -> None:
    """Write `config.json` and `model.safetensors`, the same each time. There is no tokenizer."""
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB, "hidden_size": HIDDEN,
        "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "max_position_embeddings": LONGEST,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True,
        "bos_token_id": 1, "eos_token_id": EOS, "torch_dtype": "float32",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    random = np.random.default_rng(0)
    tensors = {
        name: np.ones(shape, np.float32) if len(shape) == 1 else random.normal(0.0, SPREAD, shape).astype(np.float32)
        for name, shape in _shapes()
    }
    tensors["model.norm.weight"] *= FLATNESS
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for number in range(LAYERS):
        layer = f"model.layers.{number}"
        yield f"{layer}.input_layernorm.weight", (HIDDEN,)
        yield f"{layer}.self_attn.q_proj.weight", (HEADS * HEAD_DIM, HIDDEN)
        yield f"{layer}.self_attn.k_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield f"{layer}.self_attn.v_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield f"{layer}.self_attn.o_proj.weight", (HIDDEN, HEADS * HEAD_DIM)
        yield f"{layer}.post_attention_layernorm.weight", (HIDDEN,)
        yield f"{layer}.mlp.gate_proj.weight", (INNER, HIDDEN)
        yield f"{layer}.mlp.up_proj.weight", (INNER, HIDDEN)
        yield f"{layer}.mlp.down_proj.weight", (HIDDEN, INNER)
    yield "model.norm.weight", (HIDDEN,)
