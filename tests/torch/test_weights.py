"""Loading: every tensor must be expected, fit, and come once; configurations that are not supported are named."""

import pytest
import torch

from enginecore.errors import ConfigurationError, ModelError
from tests.torch.tiny import make_executor, make_hf_model, make_source


@pytest.fixture(scope="module")
def model():
    return make_hf_model(num_hidden_layers=2)


def broken(model, change, **config):
    source = make_source(model, **config)
    change(source.tensors)
    return source


def test_a_missing_tensor_is_named_with_the_model(model):
    source = broken(model, lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight"))
    with pytest.raises(ModelError, match=r"1 tensors are missing from model 'tiny' \(/nowhere/tiny\): .*mlp.up_proj"):
        make_executor(source)


def test_an_unknown_tensor_is_named(model):
    source = broken(model, lambda tensors: tensors.update({"model.layers.2.mlp.up_proj.weight": torch.zeros(2)}))
    with pytest.raises(ModelError, match=r"'model.layers.2.mlp.up_proj.weight' .* belongs to nothing"):
        make_executor(source)


def test_biases_that_the_configuration_does_not_know_are_unknown(model):
    source = broken(model, lambda tensors: tensors.update({"model.layers.0.self_attn.q_proj.bias": torch.zeros(48)}))
    with pytest.raises(ModelError, match=r"q_proj.bias' .* belongs to nothing"):
        make_executor(source)


def test_a_wrong_shape_is_named_with_both_shapes(model):
    name = "model.layers.0.self_attn.k_proj.weight"
    source = broken(model, lambda tensors: tensors.update({name: tensors[name].T}))
    with pytest.raises(ModelError, match=r"k_proj.weight' .* has shape \[48, 16\], .* asks for \[16, 48\]"):
        make_executor(source)


def test_a_tensor_that_comes_twice_is_refused(model):
    source = make_source(model)

    class Twice:
        name, path, config = source.name, source.path, source.config

        def weights(self, dtype, part_of):
            yield from source.weights(dtype, part_of)
            name, tensor = "model.norm.weight", source.tensors["model.norm.weight"]
            yield name, tensor[part_of(name, tuple(tensor.shape))]

    with pytest.raises(ModelError, match=r"'model.norm.weight' .* comes twice"):
        make_executor(Twice())


def test_a_tied_checkpoint_may_repeat_the_embedding_and_old_ones_the_frequencies():
    tied = make_hf_model(num_hidden_layers=1, tie_word_embeddings=True)
    extra = {
        "lm_head.weight": tied.model.embed_tokens.weight.detach(),
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(4),
    }
    make_executor(broken(tied, lambda tensors: tensors.update(extra)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"architecture": "MambaForCausalLM"},
            "'MambaForCausalLM' of model 'tiny' .* supported are: LlamaFor",
        ),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "rope_scaling type 'yarn' is not supported"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}, "'llama3' lacks low_freq_factor, high_freq_factor"),
        ({"head_dim": 7}, "head_dim must be even"),
    ],
)
def test_unsupported_configurations_are_refused_by_name(model, changes, message):
    with pytest.raises(ModelError, match=message):
        make_executor(make_source(model, **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "tpu"}, "device must be"),
        ({"device": "cuda:99"}, "'cuda:99' is not present"),
        ({"dtype": "int8"}, "dtype must be one of auto, float32"),
        ({"dtype": "float16"}, "'float16' is not supported on the CPU"),
    ],
)
def test_settings_that_cannot_be_met_are_refused_by_name(model, changes, message):
    with pytest.raises(ConfigurationError, match=message):
        make_executor(make_source(model), **changes)
