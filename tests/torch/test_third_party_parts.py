"""Architectures and attention backends of third parties: one module each, chosen as the bundled ones are."""

# pyright: reportCallIssue=false

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from enginecore import SamplingParams
from enginecore.assembly import build_engine_core
from enginecore.catalog import LoadedCatalog
from enginecore.clock import RealClock
from enginecore.errors import ConfigurationError, ModelError
from enginecore.messages import EngineCoreRequest
from enginecore.settings import load_settings
from enginecore_models.source import find_model
from enginecore_torch.attention.interface import AttentionContext, AttentionNeeds
from tests.torch import qwen3
from tests.torch.odd_attention import HALF, RECORDED
from tests.torch.ranks import Ranks
from tests.torch.tiny import Driver, hf_greedy, make_executor, make_hf_model, make_source

PROMPTS = ([5, 9, 17, 3], list(range(3, 40)))


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=211, hidden_size=48, intermediate_size=88, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=160, initializer_range=0.4, eos_token_id=2,
        tie_word_embeddings=False, attn_implementation="eager",
    )  # fmt: skip
    made = Qwen3ForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
    return made


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("qwen3") / "model"
    model.save_pretrained(path)
    return path


def catalog_with(*components, **settings):
    return LoadedCatalog(load_settings(settings, components=components, environ={}))


# -- architectures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["torch", "native"])
def test_a_new_architecture_gives_the_tokens_of_transformers(model, folder, backend):
    catalog = catalog_with(qwen3.QWEN3, attention={"use": backend})
    driver = Driver(make_executor(find_model(str(folder)), catalog=catalog, settings={"ops": backend}), range(64), 8)
    for number, prompt in enumerate(PROMPTS):
        driver.add(f"r{number}", prompt)
        assert driver.generate(f"r{number}", 10, chunk=11) == hf_greedy(model, prompt, 10)


@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 1), (1, 3), (2, 2)])
def test_a_new_architecture_is_divided_over_ranks_as_the_others_are(model, folder, tensor, pipeline):
    ranks = Ranks(find_model(str(folder)), tensor, pipeline, catalog=catalog_with(qwen3.QWEN3))
    driver = Driver(ranks, range(64), 8)
    driver.add("r", PROMPTS[1])
    assert driver.generate("r", 8) == hf_greedy(model, PROMPTS[1], 8)
    ranks.shutdown()


def test_workers_build_what_the_engine_was_given(model, folder):
    """Neither the architecture nor the backend belongs to an installed plugin."""
    loaded = load_settings(
        {
            "model": str(folder), "dtype": "float32", "num_kv_blocks": 40, "attention": {"use": "recorded"},
            "executor": {"use": "multiproc", "multiproc": {"num_threads": 1, "overlap": "off"}},
        },
        components=[qwen3.QWEN3, RECORDED],
        environ={},
    )  # fmt: skip
    core = build_engine_core(loaded, RealClock())
    params = SamplingParams(temperature=0, seed=0, max_tokens=6, ignore_eos=True)
    core.add_request(EngineCoreRequest(request_id="r", prompt_token_ids=PROMPTS[0], params=params))
    tokens = []
    while core.has_requests():
        outputs = [output for due in core.advance()[0].values() for output in due.outputs]
        tokens += [token for output in outputs for token in output.new_token_ids]
    assert tokens == hf_greedy(model, PROMPTS[0], 6)
    assert core.executor.collective_rpc("attention_backend") == ["recorded"]
    core.shutdown()


def test_a_new_architecture_is_a_module_of_under_40_lines():
    assert len(Path(qwen3.__file__).read_text().splitlines()) < 40


def test_an_architecture_reads_what_it_needs_of_config_json(folder):
    source: Any = find_model(str(folder))
    fields = {**source.config.fields, "use_sliding_window": True}
    windowed = replace(source, config=replace(source.config, fields=fields))
    with pytest.raises(ModelError, match="sliding windows are not supported by Qwen3"):
        make_executor(windowed, catalog=catalog_with(qwen3.QWEN3))


def test_without_its_component_an_architecture_is_refused(folder):
    with pytest.raises(ModelError, match=r"'Qwen3ForCausalLM' .* is not supported; supported are: LlamaForCausalLM"):
        make_executor(find_model(str(folder)))


# -- attention backends ----------------------------------------------------------------------------


def needs_with(**changes):
    fields = {
        "num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "block_size": 16, "dtype": torch.float32,
        "device": torch.device("cpu"), **changes,
    }  # fmt: skip
    return AttentionNeeds(**fields)


def build(catalog, name, needs):
    return catalog.build("attention", name, AttentionContext(needs=needs, catalog=catalog))


def test_a_new_backend_is_chosen_by_name_and_gives_the_same_tokens():
    model = make_hf_model()
    catalog = catalog_with(RECORDED, attention={"use": "recorded"})
    executor = make_executor(make_source(model), catalog=catalog)
    assert executor.collective_rpc("attention_backend") == ["recorded"]
    driver = Driver(executor, range(64), 8)
    driver.add("r", PROMPTS[1])
    assert driver.generate("r", 8) == hf_greedy(model, PROMPTS[1], 8)


def test_auto_passes_over_what_objects_and_says_once_why(caplog):
    catalog = catalog_with(HALF, RECORDED, attention={"auto": {"order": ["half", "recorded", "torch"]}})
    with caplog.at_level(logging.INFO):
        assert build(catalog, "auto", needs_with()).name == "recorded"
    assert [record.message for record in caplog.records] == [
        "attention: recorded (attention backend 'half': it needs float16, and the dtype is torch.float32; "
        "it needs a better day)"
    ]


def test_a_backend_asked_for_by_name_never_falls_back():
    catalog = catalog_with(HALF, attention={"use": "half"})
    with pytest.raises(ConfigurationError, match="attention backend 'half': it needs float16"):
        make_executor(make_source(make_hf_model()), catalog=catalog)


def test_auto_without_a_backend_that_can_gives_all_objections():
    catalog = catalog_with(HALF, attention={"auto": {"order": ["half", "native"]}})
    with pytest.raises(ConfigurationError, match=r"'half': it needs float16.*'native': .* dtype is float16"):
        build(catalog, "auto", needs_with(dtype=torch.float16))


@pytest.mark.parametrize("name", ["native", "torch", "auto"])
@pytest.mark.parametrize("feature", [{"window": 64}, {"soft_cap": 30.0}])
def test_a_feature_that_no_backend_declares_is_never_passed_over(name, feature):
    [(word, value)] = feature.items()
    with pytest.raises(ConfigurationError, match=f"it does not support {word} = {value}"):
        build(catalog_with(), name, needs_with(**feature))
