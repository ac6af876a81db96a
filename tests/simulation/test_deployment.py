"""Models on cards: what lab notes and data sheets say."""

import json

import pytest

from enginecore.errors import ConfigurationError
from enginecore_simulation import HARDWARE, PRESETS, Deployment, Efficiency, Hardware, ModelShape, find_shape


def shape(name):
    found = find_shape(name)
    assert found is not None
    return found


def deployment(hardware="H100-SXM", model="llama-3-8b", **more):
    return Deployment(hardware=HARDWARE[hardware], shape=shape(model), **more)


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [
        ("smollm2-135m", 0.1345, 0.1345),
        ("llama-2-7b", 6.738, 6.738),
        ("llama-3-8b", 8.030, 8.030),
        ("llama-3-70b", 70.55, 70.55),
        ("mistral-7b", 7.248, 7.248),
        ("mixtral-8x7b", 46.70, 12.88),
        ("qwen2.5-7b", 7.615, 7.615),
        ("qwen3-30b-a3b", 30.53, 3.35),
    ],
)
def test_presets_have_as_many_parameters_as_their_models(name, billions, active):
    found = shape(name)
    assert found.num_parameters / 1e9 == pytest.approx(billions, rel=0.002)
    assert found.num_active_parameters / 1e9 == pytest.approx(active, rel=0.002)


def test_every_preset_is_a_shape():
    assert all(shape(name).num_parameters > 1e8 for name in PRESETS)
    assert shape("Llama-3-8B") == shape("llama-3-8b")


@pytest.mark.parametrize(
    ("hardware", "weights_ms", "token_us", "kv_us"),
    [("A100-SXM-80", 10.8, 77, 0.086), ("H100-SXM", 6.6, 24, 0.052), ("H200-SXM", 4.6, 24, 0.036)],
)
def test_costs_of_an_8b_model(hardware, weights_ms, token_us, kv_us):
    costs = deployment(hardware).costs()
    assert costs.weights * 1e3 == pytest.approx(weights_ms, rel=0.01)
    assert costs.per_token * 1e6 == pytest.approx(token_us, rel=0.02)
    assert costs.per_kv_token * 1e6 == pytest.approx(kv_us, rel=0.02)
    assert costs.per_attention_pair == pytest.approx(4 * 32 * 32 * 128 / (0.5 * HARDWARE[hardware].flops))
    assert (costs.comm_per_step, costs.comm_per_token) == (0.0, 0.0)


def test_tensor_parallel_ranks_share_all_but_the_all_reduces():
    one, four = deployment().costs(), deployment(tensor_parallel_size=4).costs()
    for parameter in ("weights", "per_token", "per_kv_token", "per_attention_pair"):
        assert getattr(four, parameter) == pytest.approx(getattr(one, parameter) / 4)
    assert (four.per_step, four.per_request) == (one.per_step, one.per_request)
    assert four.comm_per_step == pytest.approx(64 * 10e-6)
    assert four.comm_per_token == pytest.approx(64 * 2 * 3 / 4 * 4096 * 2 / (0.75 * 450e9))


def test_blocks_are_what_weights_leave_of_the_card():
    # 0.9 * 80 GB - 16.06 GB, at 131,072 bytes a token and 16 tokens a block
    assert deployment().num_kv_blocks(16, 0.9) == int((72e9 - shape("llama-3-8b").num_parameters * 2) / (16 * 131_072))
    assert deployment(model="llama-3-70b").num_kv_blocks(16, 0.9) == 0


def test_two_cards_hold_more_than_twice_the_blocks_of_one():
    one = deployment().num_kv_blocks(16, 0.9)
    tp = deployment(tensor_parallel_size=2).num_kv_blocks(16, 0.9)
    pp = deployment(pipeline_parallel_size=2).num_kv_blocks(16, 0.9)
    assert tp == pp == int((144e9 - 2 * shape("llama-3-8b").num_parameters) / (16 * 131_072))
    assert tp > 2 * one


def test_the_fullest_stage_decides():
    uneven = deployment(pipeline_parallel_size=5)
    assert uneven.stage_layers == (7, 7, 6, 6, 6)
    weights = shape("llama-3-8b").num_parameters * 2 / 32
    assert uneven.num_kv_blocks(16, 0.5) == int((40e9 - 7 * weights) / (7 * 16 * 4096))


def test_a_kv_head_lies_on_each_card_at_least_once():
    assert deployment(model="qwen2.5-7b", tensor_parallel_size=4).kv_page_bytes(1) == 2 * 4 * 128 * 2
    assert deployment(model="qwen2.5-7b", tensor_parallel_size=7).kv_page_bytes(1) == 2 * 7 * 128 * 2


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"tensor_parallel_size": 3}, "tensor_parallel_size must divide the model's 32 attention heads, got 3"),
        ({"pipeline_parallel_size": 33}, "pipeline_parallel_size must be between 1 and the model's 32 layers, got 33"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(sizes, message):
    with pytest.raises(ConfigurationError, match=message):
        deployment(**sizes)


def test_a_card_without_memory_is_refused():
    with pytest.raises(ConfigurationError, match="memory of a hardware must be above 0, got 0"):
        Hardware(flops=1.0, bandwidth=1.0, memory=0, link=1.0)


def test_efficiency_is_a_divisor():
    half = deployment(efficiency=Efficiency(bandwidth=0.365)).costs()
    assert half.weights == pytest.approx(2 * deployment().costs().weights)


# -- config.json -------------------------------------------------------------------------------------------------------

CONFIG = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "hidden_size": 32,
    "intermediate_size": 64,
    "vocab_size": 100,
    "max_position_embeddings": 128,
}


def test_what_a_config_leaves_out_has_its_usual_meaning():
    found = ModelShape.from_config(CONFIG)
    assert (found.num_kv_heads, found.head_dim, found.dtype_bytes, found.tied) == (4, 8, 2, False)
    assert found.num_parameters == 2 * (4 * 32 * 32 + 3 * 32 * 64) + 2 * 100 * 32
    assert found.kv_bytes_per_token == 2 * 2 * 4 * 8 * 2
    assert found.with_dtype("float32").kv_bytes_per_token == 2 * found.kv_bytes_per_token
    assert ModelShape.from_config({"text_config": {**CONFIG, "torch_dtype": "float32"}}).dtype_bytes == 4


def test_shared_experts_are_always_active():
    found = ModelShape.from_config(
        {**CONFIG, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_shared_experts": 1}
    )
    assert found.num_parameters - found.num_active_parameters == 2 * 6 * 3 * 32 * 16
    assert found.shared_intermediate_size == 16


def test_a_config_file_or_its_folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert find_shape(str(tmp_path)) == find_shape(str(tmp_path / "config.json")) == ModelShape.from_config(CONFIG)
    assert find_shape("no-such-model") is None
    assert find_shape(str(tmp_path / "other.json")) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "config.json cannot be read as a model's configuration"),
        ("[]", "config.json must hold an object, as config.json does, not a list"),
        (json.dumps({**CONFIG, "vocab_size": "many"}), "vocab_size must be an integer of at least 1, got 'many'"),
        (json.dumps({**CONFIG, "hidden_size": 0}), "hidden_size must be an integer of at least 1, got 0"),
        (json.dumps({"hidden_size": 8}), "config.json has no num_attention_heads: a decoder's config.json has"),
        (json.dumps({**CONFIG, "dtype": "int3"}), "dtype must be one of float32, .*, got 'int3'"),
    ],
)
def test_a_broken_config_is_refused_with_what_is_wrong(tmp_path, text, message):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        find_shape(str(tmp_path))
