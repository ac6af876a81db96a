"""`EngineSettings`: frozen, typed per component, and able to travel."""

# pyright: reportAttributeAccessIssue=false

import json
import multiprocessing

import pytest
from pydantic import SecretStr, ValidationError

from enginecore.errors import ConfigurationError, PluginError
from enginecore.plugin import Component, ComponentSettings
from enginecore.settings import EngineSettings, load_registry, load_settings, restore_settings, settings_model
from tests.registry.fake_plugins import SCHEDULER, record_of
from tests.settings import making
from tests.settings.making import load, make


def test_settings_and_their_tables_are_frozen():
    settings = load().settings
    for owner, name in ((settings, "seed"), (settings.scheduler, "use"), (settings.plugins, "block")):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(owner, name, getattr(owner, name))


def test_settings_without_components_say_what_is_missing():
    with pytest.raises(ConfigurationError, match="no table for executor: no plugin that brings it was loaded"):
        _ = EngineSettings().component("executor").settings


def test_use_is_no_component():
    settings = settings_model(load().registry).model_validate({"scheduler": {"use": "use"}})
    with pytest.raises(ConfigurationError, match="no table for scheduler 'use'"):
        _ = settings.component("scheduler").settings


def test_the_table_of_tokenizers_is_tokenization():
    settings = load({"tokenizer": "some/path"}).settings
    assert settings.tokenizer == "some/path"
    assert settings.component("tokenizer").name == "auto"


def test_the_schema_covers_the_tables_of_loaded_components():
    schema = type(load().settings).model_json_schema()
    table = schema["$defs"]["SchedulerTable"]
    assert {"use", "fcfs", "shapes", "needy"} <= table["properties"].keys()
    assert table["additionalProperties"] is False
    shapes = schema["$defs"]["ShapesSettings"]["properties"]
    assert shapes["weight"]["type"] == "number"
    assert schema["properties"]["max_num_seqs"]["minimum"] == 1


def report(plain, queue):
    """Runs in the child."""
    loaded = restore_settings(json.loads(plain))
    chosen = loaded.settings.component("scheduler")
    name, settings = chosen.name, chosen.settings
    queue.put((name, settings.weight, loaded.settings.model_dump(mode="json"), dict(loaded.sources)))


def test_a_child_process_has_the_same_settings_whatever_its_environment_says(monkeypatch):
    loaded = load({"seed": 3, "scheduler.use": "shapes", "scheduler.shapes.weight": 4, "kv_cache_memory": "2GiB"})
    monkeypatch.setenv("ENGINECORE_SEED", "99")
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=report, args=(json.dumps(loaded.to_plain()), queue))
    child.start()
    name, weight, settings, sources = queue.get(timeout=60)
    child.join(60)
    assert (name, weight, settings["seed"], settings["kv_cache_memory"]) == ("shapes", 4.0, 3, 2147483648)
    assert settings == loaded.settings.model_dump(mode="json")
    assert sources == loaded.sources


def test_what_cannot_travel_is_refused_before_anything_starts():
    class Secretive(ComponentSettings):
        token: SecretStr = SecretStr("t")

    local = Component(kind="scheduler", name="local", factory=make)
    with pytest.raises(PluginError, match="given as an object"):
        load_settings(components=[local], environ={}).to_plain()
    secretive = Component(kind="scheduler", name="secretive", factory=make, settings=Secretive)
    with pytest.raises(ConfigurationError, match="do not survive as plain data"):
        load_settings(components=[secretive], environ={}).to_plain()


def test_components_by_name_have_tables_too():
    loaded = load_settings(
        {"scheduler.use": "shapes", "scheduler.shapes.loud": True},
        components=["tests.settings.making:SHAPES"],
        environ={},
    )
    assert loaded.settings.component("scheduler").settings == making.ShapesSettings(loud=True)


def test_the_registry_alone_does_not_mind_wrong_tables(site):
    site.install("acme", SCHEDULER.format(name="acme"))
    registry = load_registry({"plugins.block": ["acme"], "scheduler.nonsense": 1, "seed": "x"}, environ={})
    assert record_of(registry, "acme").status == "blocked"
    with pytest.raises(ConfigurationError, match="no such setting"):
        load_registry({"nonsense": 1}, environ={})
