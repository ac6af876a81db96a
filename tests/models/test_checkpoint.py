"""Weights and configurations of Hugging Face folders, as transformers writes them."""

import json
import shutil
import weakref

import pytest
import torch
from safetensors.torch import load_file, save_file

from enginecore.errors import ModelError
from enginecore_models.checkpoint import Checkpoint, write_safetensors
from enginecore_models.source import find_model
from tests.models import tiny

INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path, llama):
    llama.save_pretrained(tmp_path / "whole")
    return tmp_path / "whole"


@pytest.fixture
def sharded(tmp_path, llama):
    llama.save_pretrained(tmp_path / "sharded", max_shard_size="100KB")
    return tmp_path / "sharded"


def shards(folder):
    return sorted(folder.glob("model-*.safetensors"))


def assert_same_weights(model, state, dtype=torch.float32):
    found = dict(find_model(str(model)).weights(dtype))
    assert found.keys() == state.keys()
    for name, weight in state.items():
        assert torch.equal(found[name], weight.to(dtype)), name


def test_a_folder_gives_every_weight_once(folder, llama):
    assert_same_weights(folder, llama.state_dict())


def test_a_sharded_folder_gives_every_weight_once(sharded, llama):
    assert len(shards(sharded)) > 3
    assert_same_weights(sharded, llama.state_dict())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_are_cast(folder, llama, dtype):
    assert_same_weights(folder, llama.state_dict(), dtype)


def test_the_dtype_is_what_the_files_hold(tmp_path, folder):
    assert find_model(str(folder)).config.dtype == "float32"
    tiny.make_llama().bfloat16().save_pretrained(tmp_path / "half")
    assert find_model(str(tmp_path / "half")).config.dtype == "bfloat16"


def test_the_stream_holds_one_tensor_at_a_time(sharded):
    alive: list[weakref.ref[torch.Tensor]] = []
    for _, weight in find_model(str(sharded)).weights(torch.bfloat16):
        assert [ref for ref in alive if ref() is not None] == []
        alive.append(weakref.ref(weight))
        del weight
    assert len(alive) == 21


def test_changing_a_weight_leaves_the_file_alone(folder):
    _, weight = next(iter(find_model(str(folder)).weights(torch.float32)))
    weight.zero_()
    _, again = next(iter(find_model(str(folder)).weights(torch.float32)))
    assert again.abs().sum() > 0


def test_a_missing_shard_is_named(sharded):
    lost = shards(sharded)[1]
    lost.unlink()
    with pytest.raises(ModelError, match=rf"{lost.name} is missing, though .*index.json names it: download"):
        find_model(str(sharded))


@pytest.mark.parametrize("keep", [0, 5, 400, -1])
def test_a_truncated_file_is_named(folder, keep):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ModelError, match=r"model\.safetensors \(\d+ bytes\) is truncated .*download"):
        find_model(str(folder))


def test_a_truncated_shard_is_named(sharded):
    last = shards(sharded)[-1]
    last.write_bytes(last.read_bytes()[:-1])
    with pytest.raises(ModelError, match=rf"{last.name} .* is truncated"):
        find_model(str(sharded))


def test_a_tensor_that_its_shard_lacks_is_named(sharded):
    first = shards(sharded)[0]
    weights = load_file(first)
    lost = sorted(weights)[0]
    save_file({**{name: w for name, w in weights.items() if name != lost}, "other": torch.zeros(1)}, first)
    with pytest.raises(ModelError, match=rf"{first.name} does not hold '{lost}'"):
        find_model(str(sharded))


@pytest.mark.parametrize("content", ["{", "[]", '{"weight_map": 3}'])
def test_a_broken_index_is_named(sharded, content):
    (sharded / INDEX).write_text(content)
    with pytest.raises(ModelError, match=r"model\.safetensors\.index\.json cannot be used"):
        find_model(str(sharded))


def test_pickled_weights_are_refused_with_the_way_out(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin holds pickled code .* convert it to safetensors"):
        find_model(str(folder))


def test_a_folder_of_gguf_files_names_one(tmp_path):
    (tmp_path / "some.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"give the file itself, e.g. .*some\.gguf"):
        find_model(str(tmp_path))


def test_a_folder_without_weights_says_what_is_missing(tmp_path):
    with pytest.raises(ModelError, match=r"neither model\.safetensors nor model\.safetensors\.index\.json"):
        find_model(str(tmp_path))


def test_integers_are_not_weights(folder):
    weights = load_file(folder / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    save_file({**weights, name: weights[name].to(torch.int8)}, folder / "model.safetensors")
    with pytest.raises(ModelError, match=rf"'{name}' is stored as I8, which is not supported"):
        find_model(str(folder))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_written_file_is_one_that_safetensors_reads(tmp_path, dtype):
    weights = {
        "a": torch.randn(3, 5).to(dtype),
        "b.é": torch.randn(7).to(dtype),
        "none": torch.zeros(0, 4, dtype=dtype),
    }
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    write_safetensors(tmp_path / "model.safetensors", dtype, shapes, iter(weights.items()))
    header_length = int.from_bytes((tmp_path / "model.safetensors").read_bytes()[:8], "little")
    assert header_length % 8 == 0  # else the mapped tensors are not aligned
    read = load_file(tmp_path / "model.safetensors")
    assert read.keys() == weights.keys()
    assert all(torch.equal(read[name], weight) and read[name].dtype == dtype for name, weight in weights.items())
    assert dict(Checkpoint(tmp_path).weights(dtype)).keys() == weights.keys()


# -- configurations ----------------------------------------------------------------------------------


def change(folder, **fields):
    file = folder / "config.json"
    config = json.loads(file.read_text()) | fields
    file.write_text(json.dumps({name: value for name, value in config.items() if value != "absent"}))
    return folder


def llama3(**changes):
    """The rotary embedding of Llama 3.1 with changes."""
    right = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    return {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **right, **changes}}


def test_the_config_of_transformers_5(folder):
    config = find_model(str(folder)).config
    assert config.architecture == "LlamaForCausalLM"
    assert (config.hidden_size, config.intermediate_size, config.num_hidden_layers) == (64, 96, 2)
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim) == (4, 2, 16)
    assert (config.vocab_size, config.max_position_embeddings, config.rms_norm_eps) == (400, 256, 1e-5)
    assert (config.rope_theta, config.rope_scaling, config.hidden_act) == (10000.0, None, "silu")
    assert (config.tie_word_embeddings, config.attention_bias, config.mlp_bias) == (False, False, False)
    assert (config.eos_token_ids, config.bos_token_id) == ((1,), 0)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}, (5e5, None)),
        ({"rope_parameters": "absent", "rope_theta": 123.0}, (123.0, None)),
        ({"rope_parameters": "absent"}, (10000.0, None)),
        (
            {"rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", "factor": 8.0}},
            (5e5, {"rope_type": "llama3", "factor": 8.0}),
        ),
        (
            {"rope_parameters": "absent", "rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2}},
            (5e5, {"rope_type": "linear", "factor": 2}),
        ),
        (
            {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
            (10000.0, {"rope_type": "default", "partial_rotary_factor": 0.5}),
        ),
    ],
)
def test_rope_of_every_age(folder, fields, expected):
    config = find_model(str(change(folder, **fields))).config
    assert (config.rope_theta, config.rope_scaling) == expected


@pytest.mark.parametrize(
    ("generation", "expected"),
    [({"eos_token_id": [7, 8]}, (7, 8)), ({"eos_token_id": 9}, (9,)), ({}, (1,)), (None, (1,))],
)
def test_eos_of_the_generation_config_goes_first(folder, generation, expected):
    file = folder / "generation_config.json"
    file.unlink() if generation is None else file.write_text(json.dumps(generation))
    assert find_model(str(folder)).config.eos_token_ids == expected


@pytest.mark.parametrize("eos", [None, "absent"])
def test_a_model_may_have_no_eos(folder, eos):
    (folder / "generation_config.json").unlink()
    assert find_model(str(change(folder, eos_token_id=eos))).config.eos_token_ids == ()


def test_heads_default_to_multi_head_attention(folder):
    config = find_model(str(change(folder, num_key_value_heads="absent", head_dim=None))).config
    assert (config.num_key_value_heads, config.head_dim) == (4, 16)


@pytest.mark.parametrize("field", ["hidden_size", "num_hidden_layers", "vocab_size", "rms_norm_eps", "architectures"])
def test_a_missing_field_is_named_with_its_file(folder, field):
    with pytest.raises(ModelError, match=rf"config\.json cannot be used: .*missing required field `{field}`"):
        find_model(str(change(folder, **{field: "absent"})))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_size": "wide"}, r"config\.json cannot be used: .*\$\.hidden_size"),
        ({"num_attention_heads": 0}, r"config\.json cannot be used: .*\$\.num_attention_heads"),
        ({"num_key_value_heads": 3}, "num_key_value_heads = 3 does not divide num_attention_heads = 4"),
        ({"hidden_size": 66, "head_dim": None}, "num_attention_heads = 4 does not divide hidden_size = 66"),
        ({"rope_parameters": {"rope_theta": -1}}, "rope_theta must be a number above 0, got -1"),
        ({"rope_parameters": {"rope_theta": True}}, "rope_theta must be a number above 0, got True"),
        ({"rope_parameters": {"rope_theta": 10**400}}, "rope_theta must be a number above 0, got 1000"),
        ({"rope_parameters": "absent", "rope_theta": 0}, r"config\.json: rope_theta must be a number above 0, got 0"),
        ({"rms_norm_eps": 0}, r"config\.json: rms_norm_eps must be a number above 0, got 0\.0"),
        ({"rms_norm_eps": -1e-5}, r"config\.json: rms_norm_eps must be a number above 0, got -1e-05"),
        (llama3(factor=0), r"config\.json: factor must be a number above 0, got 0"),
        (llama3(factor="8"), "factor must be a number above 0, got '8'"),
        (llama3(low_freq_factor=-1), "low_freq_factor must be a number above 0, got -1"),
        (llama3(high_freq_factor=0), "high_freq_factor must be a number above 0, got 0"),
        (llama3(high_freq_factor=1.0), r"high_freq_factor must be above low_freq_factor = 1\.0, got 1\.0"),
        (llama3(original_max_position_embeddings=0), "original_max_position_embeddings must be a number above 0"),
        ({"quantization_config": {"quant_method": "gptq"}}, r"quantised weights \(gptq\) are not supported"),
    ],
)
def test_a_wrong_field_is_named_with_its_file(folder, fields, message):
    with pytest.raises(ModelError, match=message):
        find_model(str(change(folder, **fields)))


def test_an_unknown_architecture_is_passed_on(folder):
    assert find_model(str(change(folder, architectures=["NewForCausalLM"]))).config.architecture == "NewForCausalLM"


def test_a_missing_config_is_named(folder):
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match=r"config\.json is missing"):
        find_model(str(folder))


def test_a_broken_config_is_named(folder):
    (folder / "config.json").write_text('{"hidden_size": ')
    with pytest.raises(ModelError, match=r"config\.json cannot be used"):
        find_model(str(folder))


def test_a_file_that_is_no_gguf_is_refused(folder, tmp_path):
    shutil.copy(folder / "config.json", tmp_path / "model.gguf")
    with pytest.raises(ModelError, match=r"model\.gguf is not a GGUF file"):
        find_model(str(tmp_path / "model.gguf"))
