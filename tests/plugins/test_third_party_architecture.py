"""`examples/third_party_architecture`: built, installed, and used by a model that names it."""

import json

import pytest

from tests.plugins.environment import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "third_party_architecture"


@pytest.fixture
def environment(third_party):
    return third_party


def test_it_is_listed(environment):
    found, _ = environment.plugins()
    record = found["qwen2-architecture"]
    assert (record["status"], record["version"], record["module"]) == ("active", "0.1.0", "qwen2_architecture")
    [component] = record["components"]
    assert (component["kind"], component["name"]) == ("model", "Qwen2ForCausalLM")


def test_listing_it_does_not_import_torch(environment):
    done = environment.python("-c", "import sys, qwen2_architecture; print('torch' in sys.modules)")
    assert done.stdout.split() == ["False"], done.stderr


def test_its_file_is_good_and_misspelt_backends_are_named(environment, tmp_path):
    done = environment.enginecore("config", "--json", "--config", str(EXAMPLE / "engine.toml"))
    assert json.loads(done.stdout)["settings"]["attention"]["auto"] == {"order": ["native", "torch"]}
    done = environment.enginecore("config", "--set", "attention.use=nativ")
    assert done.returncode == 2
    assert "no active plugin offers attention 'nativ'; did you mean native?" in done.stderr


def test_its_own_tests_pass(environment):
    assert "3 passed" in environment.own_tests(EXAMPLE.name)
