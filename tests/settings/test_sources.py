"""Arguments over environment over file over defaults, and where each value came from."""

import json

import pytest

from enginecore.errors import ConfigurationError
from enginecore.kinds import KINDS
from enginecore.settings import EngineSettings, load_settings, parse_overrides
from tests.settings.making import load, message_of

TABLES = [*(kind.table for kind in KINDS), "attention"]  # the last is of a bundled plugin


def test_defaults():
    settings = load().settings
    values = settings.model_dump()
    tables = {key: values.pop(key) for key in ("plugins", "debug", *TABLES)}
    assert values == {
        "model": "smollm2-135m",
        "tokenizer": None,
        "dtype": "auto",
        "device": "auto",
        "max_model_len": None,
        "max_num_seqs": 256,
        "max_num_waiting": None,
        "max_num_batched_tokens": 2048,
        "block_size": 16,
        "num_kv_blocks": None,
        "kv_cache_memory": 0.5,
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "seed": 0,
        "startup_timeout": 600.0,
        "shutdown_timeout": 0.0,
    }
    assert {table: tables[table]["use"] for table in TABLES} == {
        "scheduler": "fcfs",
        "victim": "worst_rank",
        "kv_cache_manager": "paged",
        "eviction": "lru",
        "executor": "single",
        "transport": "inproc",
        "tokenization": "auto",
        "attention": "auto",
    }
    assert tables["plugins"] == {"allow": None, "block": ()}
    assert tables["debug"] == {"check_invariants": False, "check_components": False}


def test_precedence_and_origin(tmp_path):
    file = tmp_path / "engine.toml"
    file.write_text(
        'model = "from-file"\nseed = 1\nblock_size = 8\n[scheduler]\nuse = "fcfs"\n[scheduler.shapes]\nweight = 2\n'
    )
    environ = {"ENGINECORE_SEED": "2", "ENGINECORE_BLOCK_SIZE": "32", "ENGINECORE_SCHEDULER__SHAPES__LOUD": "yes"}
    loaded = load({"block_size": 64, "scheduler.use": "shapes"}, environ=environ, config_file=file)
    settings = loaded.settings
    assert (settings.model, settings.seed, settings.block_size, settings.max_num_seqs) == ("from-file", 2, 64, 256)
    chosen = settings.component("scheduler")
    name, shapes = chosen.name, chosen.settings
    assert (name, shapes.weight, shapes.loud) == ("shapes", 2.0, True)
    expected = {
        "model": f"file {file}",
        "seed": "environment ENGINECORE_SEED",
        "block_size": "argument",
        "max_num_seqs": "default",
        "scheduler.use": "argument",
        "scheduler.shapes.weight": f"file {file}",
        "scheduler.shapes.loud": "environment ENGINECORE_SCHEDULER__SHAPES__LOUD",
        "scheduler.shapes.count": "default",
        "plugins.allow": "default",
    }
    assert {key: loaded.sources[key] for key in expected} == expected


def test_switching_use_by_environment_hands_no_component_anothers_options(tmp_path):
    file = tmp_path / "engine.toml"
    file.write_text('[scheduler]\nuse = "shapes"\n[scheduler.shapes]\nweight = 3\n')
    settings = load(environ={"ENGINECORE_SCHEDULER__USE": "fcfs"}, config_file=file).settings
    assert settings.component("scheduler").name == "fcfs"
    assert not hasattr(settings.component("scheduler").settings, "weight")


CONTENT = {"seed": 5, "scheduler": {"use": "shapes", "shapes": {"names": ["a", "b"], "part": {"size": 3}}}}
FILES = {
    "toml": 'seed = 5\n[scheduler]\nuse = "shapes"\nshapes = {names = ["a", "b"], part = {size = 3}}\n',
    "yaml": "seed: 5\nscheduler:\n  use: shapes\n  shapes:\n    names: [a, b]\n    part: {size: 3}\n",
    "yml": "seed: 5\nscheduler: {use: shapes, shapes: {names: [a, b], part: {size: 3}}}\n",
    "json": json.dumps(CONTENT),
}


@pytest.mark.parametrize("suffix", FILES)
def test_the_same_in_every_format_and_as_arguments(tmp_path, suffix):
    file = tmp_path / f"engine.{suffix}"
    file.write_text(FILES[suffix])
    from_file = load(config_file=str(file)).settings
    assert from_file.model_dump() == load(CONTENT).settings.model_dump()
    assert from_file.component("scheduler").settings.part.size == 3


def test_an_empty_file_is_all_defaults(tmp_path):
    for suffix in ("toml", "yaml"):
        file = tmp_path / f"engine.{suffix}"
        file.write_text("")
        assert load(config_file=file).settings.model_dump() == load().settings.model_dump()


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("none.toml", None, "cannot be read: No such file or directory"),
        ("engine.ini", "", "the suffix must be one of .toml, .yaml, .yml, .json"),
        ("engine", "", "the suffix must be one of"),
        ("engine.toml", "seed = 1\nmodel = \n", "line 2"),
        ("engine.toml", "seed = 1\nseed = 2\n", "line 2"),
        ("engine.yaml", "seed: 1\nmodel: [\n", "line 3"),
        ("engine.yaml", "seed: 1\nblock_size: 8\nseed: 2\n", "key 'seed' is there twice"),
        ("engine.json", '{"seed":\n}', "line 2"),
        ("engine.json", '{"seed": 1, "seed": 2}', "key 'seed' is there twice"),
        ("engine.json", "[1]", "must hold a table of settings, not list"),
        ("engine.yaml", "just text", "must hold a table of settings, not str"),
        ("engine.toml", b"model = '\xff'", "is malformed"),
        ("engine.json", '{"seed": ' + "[" * 100_000 + "]" * 100_000 + "}", "is malformed: it is nested too deeply"),
        ("engine.yaml", "seed: " + "[" * 2_000 + "]" * 2_000, "is malformed: it is nested too deeply"),
        ("engine.toml", "seed = " + "[" * 3_000 + "]" * 3_000, "is malformed: it is nested too deeply"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, name, content, problem):
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    message = message_of(config_file=file)
    assert str(file) in message
    assert problem in message


def test_text_that_is_nested_too_deeply_is_refused_as_text():
    deep = "[" * 100_000 + "]" * 100_000
    assert "seed = '[[[[" in message_of(parse_overrides([f"seed={deep}"]))
    assert "seed = '[[[[" in message_of(environ={"ENGINECORE_SEED": deep})


@pytest.mark.parametrize("file", [5, b"engine.toml", ["engine.toml"], True])
def test_what_is_no_path_is_refused(file):
    assert f"config_file must be the path of a file, got {file!r}" in message_of(config_file=file)


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "engine.toml").mkdir()
    assert "cannot be read" in message_of(config_file=tmp_path / "engine.toml")


@pytest.mark.parametrize(
    ("variable", "text", "key", "value"),
    [
        ("MODEL", "123", "model", "123"),
        ("MODEL", "[x", "model", "[x"),
        ("TOKENIZER", "null", "tokenizer", None),
        ("ENABLE_PREFIX_CACHING", "0", "enable_prefix_caching", False),
        ("KV_CACHE_MEMORY", "0.5", "kv_cache_memory", 0.5),
        ("KV_CACHE_MEMORY", "2GiB", "kv_cache_memory", 2147483648),
        ("MAX_MODEL_LEN", "auto", "max_model_len", "auto"),
        ("PLUGINS__BLOCK", '["enginecore-torch"]', "plugins.block", ["enginecore-torch"]),
        ("DEBUG__CHECK_INVARIANTS", "true", "debug.check_invariants", True),
        ("SCHEDULER__SHAPES__COUNT", "7", "scheduler.shapes.count", 7),
        ("SCHEDULER__SHAPES__NAMES", '["a"]', "scheduler.shapes.names", ["a"]),
        ("SCHEDULER__SHAPES__PART__SIZE", "4", "scheduler.shapes.part.size", 4),
        ("SCHEDULER__SHAPES__SHARES", '{"a": 0.5}', "scheduler.shapes.shares", {"a": 0.5}),
        ("EXECUTOR__MY_OWN__WEIGHT", "2", "executor.My-Own.weight", 2.0),
    ],
)
def test_text_is_read_by_the_type_of_its_setting(variable, text, key, value):
    def at(settings):
        found = settings.model_dump(mode="json")
        for part in key.split("."):
            found = found[part]
        return found

    assert at(load(environ={f"ENGINECORE_{variable}": text}).settings) == value
    assert at(load(parse_overrides([f"{key}={text}"])).settings) == value


def test_overrides_may_be_quoted_and_go_on_top_of_tables():
    arguments = {"scheduler": {"use": "fcfs", "shapes": {"loud": True}}} | parse_overrides(
        ['scheduler.use="shapes"', "scheduler.shapes.weight = 2.5", "scheduler.shapes.names = ['a', 'b']"]
    )
    chosen = load(arguments).settings.component("scheduler")
    name, settings = chosen.name, chosen.settings
    assert (name, settings.weight, settings.loud, settings.names) == ("shapes", 2.5, True, ("a", "b"))


@pytest.mark.parametrize("override", ["seed", "=3", "scheduler.=x", ""])
def test_an_override_is_a_key_and_a_value(override):
    with pytest.raises(ConfigurationError, match="write KEY=VALUE"):
        parse_overrides([override])


def test_the_real_environment_is_read(monkeypatch):
    monkeypatch.setenv("ENGINECORE_SEED", "17")
    assert load_settings().settings.seed == 17
    assert EngineSettings().seed == 0  # constructing settings reads nothing


def test_the_folder_of_converted_models_is_no_setting():
    loaded = load_settings(environ={"ENGINECORE_CACHE": "/somewhere", "ENGINECORE_MAX_NUM_SEQS": "3"})
    assert loaded.settings.max_num_seqs == 3
