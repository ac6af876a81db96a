"""GGUF files: the same configuration and weights as the Hugging Face model that they were made from."""

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Quantisation
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from enginecore.errors import ModelError
from enginecore_models.source import find_model
from tests.models import tiny


def read(path, dtype=torch.float32):
    return dict(find_model(str(path)).weights(dtype))


def llama3_factors(factor, head_dim, theta, original=8192, low=1, high=4):
    """As llama.cpp's converter computes them (convert_hf_to_gguf.py, LlamaModel.generate_extra_tensors)."""
    factors = []
    for frequency in 1.0 / theta ** (np.arange(0, head_dim, 2) / head_dim):
        wavelength = 2 * np.pi / frequency
        if wavelength < original / high:
            factors.append(1.0)
        elif wavelength > original / low:
            factors.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, dtype=np.float32)


def test_the_config_is_read_from_the_metadata(tiny_gguf):
    config = find_model(str(tiny_gguf)).config
    assert config.architecture == "LlamaForCausalLM"
    assert (config.hidden_size, config.intermediate_size, config.num_hidden_layers) == (64, 96, 2)
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim) == (4, 2, 16)
    assert (config.vocab_size, config.max_position_embeddings, config.hidden_act) == (400, 256, "silu")
    assert (config.rope_theta, config.rope_scaling) == (50000.0, None)
    assert config.rms_norm_eps == pytest.approx(1e-5)
    assert (config.tie_word_embeddings, config.attention_bias, config.mlp_bias) == (False, False, False)
    assert (config.eos_token_ids, config.bos_token_id, config.dtype) == ((1,), 0, "float32")


def test_unquantised_weights_come_back_bit_by_bit(tiny_gguf, llama_state):
    found = read(tiny_gguf)
    assert found.keys() == llama_state.keys()
    for name, weight in llama_state.items():
        assert np.array_equal(found[name].numpy(), weight), name


@pytest.mark.parametrize(
    "quantisation",
    [Quantisation.F16, Quantisation.BF16, Quantisation.Q8_0, Quantisation.Q4_0, Quantisation.Q4_1, Quantisation.Q5_1],
)
def test_quantised_weights_equal_those_that_transformers_reads(tmp_path, llama, llama_state, quantisation):
    file = tiny.write_gguf(tmp_path / "tiny.gguf", llama_state, quantisation=quantisation)
    theirs = load_gguf_checkpoint(str(file), return_tensors=True, model_to_load=llama)["tensors"]
    ours = read(file)
    assert ours.keys() == theirs.keys()
    assert not torch.equal(ours["lm_head.weight"], torch.from_numpy(llama_state["lm_head.weight"]))
    for name, weight in theirs.items():
        assert torch.equal(ours[name], weight), name


@pytest.mark.parametrize(
    ("quantisation", "dtype"),
    [(Quantisation.F32, "float32"), (Quantisation.F16, "float16"), (Quantisation.Q8_0, "bfloat16")],
)
def test_the_native_dtype(tmp_path, llama_state, quantisation, dtype):
    file = tiny.write_gguf(tmp_path / "tiny.gguf", llama_state, quantisation=quantisation)
    assert find_model(str(file)).config.dtype == dtype


def test_a_cast_copy_holds_the_rounded_values(tiny_gguf, llama_state):
    for name, weight in read(tiny_gguf, torch.bfloat16).items():
        assert torch.equal(weight, torch.from_numpy(llama_state[name]).to(torch.bfloat16)), name


def test_without_output_weights_the_embedding_is_tied(tmp_path, llama_state):
    state = {name: weight for name, weight in llama_state.items() if name != "lm_head.weight"}
    file = tiny.write_gguf(tmp_path / "tied.gguf", state)
    assert find_model(str(file)).config.tie_word_embeddings
    assert "lm_head.weight" not in read(file)


def test_biases_are_found_and_permuted_like_their_weights(tmp_path):
    torch.manual_seed(1)
    model = tiny.make_llama(attention_bias=True, mlp_bias=True)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    state = {name: weight.numpy() for name, weight in model.state_dict().items()}
    file = tiny.write_gguf(tmp_path / "biased.gguf", state)
    config = find_model(str(file)).config
    assert (config.attention_bias, config.mlp_bias) == (True, True)
    found = read(file)
    assert all(np.array_equal(found[name].numpy(), weight) for name, weight in state.items())


def test_llama_3_rope_factors_become_its_parameters(tmp_path, llama_state):
    factors = llama3_factors(32.0, head_dim=16, theta=50000.0)
    assert 1 < factors[5] < 32  # a frequency that is interpolated
    file = tiny.write_gguf(tmp_path / "llama3.gguf", llama_state, extra_tensors={"rope_freqs.weight": factors})
    assert find_model(str(file)).config.rope_scaling == {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    assert read(file).keys() == llama_state.keys()


def test_other_rope_factors_are_refused(tmp_path, llama_state):
    factors = np.linspace(1, 8, 8, dtype=np.float32)
    file = tiny.write_gguf(tmp_path / "other.gguf", llama_state, extra_tensors={"rope_freqs.weight": factors})
    with pytest.raises(ModelError, match=r"other\.gguf: the factors in 'rope_freqs\.weight' are not those of Llama 3"):
        find_model(str(file))


def test_named_rope_scaling_is_passed_on(tmp_path, llama_state):
    metadata = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    file = tiny.write_gguf(tmp_path / "linear.gguf", llama_state, metadata=metadata)
    assert find_model(str(file)).config.rope_scaling == {"rope_type": "linear", "factor": 4.0}


def test_an_unsupported_architecture_is_named(tmp_path, llama_state):
    file = tiny.write_gguf(tmp_path / "falcon.gguf", llama_state, architecture="falcon")
    with pytest.raises(
        ModelError, match=r"falcon\.gguf: GGUF architecture 'falcon' is not supported; supported: llama"
    ):
        find_model(str(file))


def test_an_unsupported_tensor_is_named(tmp_path, llama_state):
    extra = {"blk.0.ffn_gate_inp.weight": np.zeros((8, 64), dtype=np.float32)}
    file = tiny.write_gguf(tmp_path / "experts.gguf", llama_state, extra_tensors=extra)
    with pytest.raises(ModelError, match=r"experts\.gguf: tensor 'blk\.0\.ffn_gate_inp\.weight' does not belong"):
        find_model(str(file))


def test_an_unsupported_tensor_type_is_named(tmp_path, llama_state):
    state = {name: weight for name, weight in llama_state.items() if name != "lm_head.weight"}
    extra = {"output.weight": np.zeros((400, 64), dtype=np.int8)}
    file = tiny.write_gguf(tmp_path / "integers.gguf", state, extra_tensors=extra)
    with pytest.raises(ModelError, match=r"integers\.gguf: 'output\.weight' is stored as I8"):
        read(file)


def test_missing_metadata_is_named(tmp_path, llama_state):
    file = tiny.write_gguf(tmp_path / "headless.gguf", llama_state, leave_out=("attention.head_count",))
    with pytest.raises(ModelError, match=r"headless\.gguf has no metadata 'llama\.attention\.head_count'"):
        find_model(str(file))


def test_a_partial_rotary_embedding_is_refused(tmp_path, llama_state):
    leave_out = ("rope.dimension_count",)
    writer_metadata = {"llama.rope.dimension_count": 8.0}
    file = tiny.write_gguf(tmp_path / "part.gguf", llama_state, leave_out=leave_out, metadata=writer_metadata)
    with pytest.raises(ModelError, match=r"rope\.dimension_count = 8\.0 of head_dim = 16"):
        find_model(str(file))


@pytest.mark.parametrize("share", [0.0001, 0.01, 0.1, 0.5, 0.99, 0.99999])
def test_a_truncated_file_is_named(tiny_gguf, share):
    content = tiny_gguf.read_bytes()
    tiny_gguf.write_bytes(content[: max(8, int(len(content) * share))])
    with pytest.raises(ModelError, match=r"tiny\.gguf \(\d+ bytes\) is truncated or not a GGUF file"):
        find_model(str(tiny_gguf))


def test_noise_after_the_magic_is_refused(tmp_path):
    (tmp_path / "noise.gguf").write_bytes(b"GGUF" + np.random.default_rng(0).bytes(5000))
    with pytest.raises(ModelError, match=r"noise\.gguf \(5004 bytes\) is truncated or not a GGUF file"):
        find_model(str(tmp_path / "noise.gguf"))
