"""Tiny models and tokenizers with random weights, written to disk the way their real makers do."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing

CORPUS = ["the quick brown fox jumps over the lazy dog", "Hello world, hello tokens", "naïve café 世界 👩‍👩‍👧"]
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}[{{ message['role'] }}] {{ message['content'] }}{{ eos_token }}\n"
    "{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"
)
CONFIG: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "vocab_size": 400,
}


def byte_level_tokenizer() -> Tokenizer:
    """320 tokens: every byte, some longer ones, <s> with which a text begins, </s>."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in ("<s>", "</s>")],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 0)])
    return tokenizer


def byte_fallback_tokenizer() -> Tokenizer:
    """290 tokens, as Llama 2 has them: pieces with a visible space, bytes for what is in no piece."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    pieces = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        *letters,
        "▁a",
        "▁the",
        "th",
        "▁t",
    ]
    vocabulary = {piece: token for token, piece in enumerate(pieces)}
    merges = [("▁", "a"), ("▁", "t"), ("t", "h")]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def byte_tokens(tokenizer: Tokenizer, data: bytes) -> list[int]:
    """One token per byte, as a model may emit them though the encoder would not."""
    vocabulary = tokenizer.get_vocab()
    if "<0x00>" in vocabulary:
        return [vocabulary[f"<0x{byte:02X}>"] for byte in data]
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in shown]  # GPT-2 shows these from U+0100 on
    letters = {byte: chr(byte) for byte in shown} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}
    return [vocabulary[letters[byte]] for byte in data]


def write_tokenizer(folder: Path, tokenizer: Tokenizer, **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"} | config,
            ensure_ascii=False,
        )
    )
    return folder


def make_llama(seed: int = 0, **config: Any):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    settings: dict[str, Any] = {**CONFIG, "bos_token_id": 0, "eos_token_id": 1, **config}
    return LlamaForCausalLM(LlamaConfig(**settings)).eval()


def write_gguf(
    path: Path,
    state: dict[str, npt.NDArray[Any]],
    *,
    architecture: str = "llama",
    quantisation: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    leave_out: tuple[str, ...] = (),
    extra_tensors: dict[str, npt.NDArray[Any]] | None = None,
    metadata: dict[str, Any] | None = None,
) -> Path:
    """What llama.cpp's converter writes for a Llama with these float32 weights; `leave_out` names metadata."""
    writer = gguf.GGUFWriter(path, architecture)
    counts = {
        "block_count": CONFIG["num_hidden_layers"],
        "context_length": CONFIG["max_position_embeddings"],
        "embedding_length": CONFIG["hidden_size"],
        "feed_forward_length": CONFIG["intermediate_size"],
        "attention.head_count": CONFIG["num_attention_heads"],
        "attention.head_count_kv": CONFIG["num_key_value_heads"],
        "rope.dimension_count": CONFIG["hidden_size"] // CONFIG["num_attention_heads"],
    }
    for key, value in counts.items():
        if key not in leave_out:
            writer.add_uint32(f"{architecture}.{key}", value)
    writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", CONFIG["rms_norm_eps"])
    writer.add_float32(f"{architecture}.rope.freq_base", 50000.0)
    for key, extra in (metadata or {}).items():
        if isinstance(extra, str):
            writer.add_string(key, extra)
        else:
            writer.add_float32(key, extra)
    _add_tokenizer(writer)
    for name, weight in state.items():
        kind = quantisation if weight.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(_gguf_name(name), gguf.quants.quantize(_permute(name, weight), kind), raw_dtype=kind)
    for name, weight in (extra_tensors or {}).items():
        writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    tokenizer = json.loads(byte_level_tokenizer().to_str())
    vocabulary = tokenizer["model"]["vocab"]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(sorted(vocabulary, key=lambda token: vocabulary[token]))
    writer.add_token_types([3 if token < 2 else 1 for token in range(len(vocabulary))])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template(CHAT_TEMPLATE)


def _permute(name: str, weight: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """llama.cpp's order of the rows of queries and keys (convert_hf_to_gguf.py, LlamaModel.permute)."""
    heads = {"q_proj": CONFIG["num_attention_heads"], "k_proj": CONFIG["num_key_value_heads"]}
    for projection, count in heads.items():
        if projection in name:
            halves = weight.reshape((count, 2, weight.shape[0] // count // 2, *weight.shape[1:]))
            return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))
    return weight


def _gguf_name(name: str) -> str:
    names = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "model.layers": "blk",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    for theirs, ours in names.items():
        name = name.replace(theirs, ours)
    return name
