"""Settings tables of kinds that plugins add: as those of the engine's own kinds, with the same errors."""

import sys

import pytest

from enginecore.assembly.components import choose_components
from enginecore.errors import ConfigurationError
from enginecore.settings import load_registry, load_settings, restore_settings
from tests.registry.fake_plugins import ROUTER, ROUTER_KIND, record_of
from tests.settings.making import message_of


def declare(site, changes=""):
    site.install("acme-kinds", ROUTER_KIND.format(changes=changes))
    site.install("acme-parts", ROUTER.format(name="last"))


def load(arguments=None, **others):
    return load_settings(arguments, environ={}, **others)


def test_a_plugins_table_is_read_from_every_source(site, tmp_path):
    declare(site)
    file = tmp_path / "engine.toml"
    file.write_text("[router]\nuse = 'last'\n[router.last]\nstart = 5\n")
    for loaded in (
        load({"router.use": "last", "router.last.start": 5}),
        load(config_file=file),
        load_settings(environ={"ENGINECORE_ROUTER__USE": "last", "ENGINECORE_ROUTER__LAST__START": "5"}),
    ):
        choice = loaded.settings.component("router")
        assert (choice.name, choice.settings.start) == ("last", 5)
        assert loaded.sources["router.last.start"] != "default"
        assert restore_settings(loaded.to_plain()).settings.model_dump() == loaded.settings.model_dump()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"router.usee": "last"}, "router.usee = 'last' (argument): no such setting; did you mean router.use?"),
        ({"router.last.strt": 1}, "router.last.strt = 1 (argument): no such setting; did you mean router.last.start?"),
        ({"rooter.use": "last"}, "rooter (argument): no such setting; did you mean router?"),
        ({"router": "last"}, "router = 'last' (argument): is a table: set router.use instead"),
        ({"router.use": 5}, "router.use = 5 (argument): must be a valid string"),
        ({"router.last.start": "x"}, "router.last.start = 'x' (argument): must be a valid integer"),
        (
            {"router.use": "lst"},
            "router.use = 'lst' (argument): no active plugin offers router 'lst'; did you mean last?",
        ),
        ({"router.lst.start": 1}, "router.lst (argument): these are settings of a component that is not loaded"),
    ],
)
def test_errors_are_those_of_the_engines_own_tables(site, arguments, message):
    declare(site)
    assert message_of(arguments).startswith(message)


def test_a_table_without_its_kind_is_no_setting(site):
    declare(site)
    for blocked in (["acme-kinds"], ["acme-kinds", "acme-parts"]):
        message = message_of({"router.use": "last", "plugins.block": blocked})
        assert message.startswith("router (argument): no such setting")
        with pytest.raises(ConfigurationError, match="router"):
            load_registry({"router.use": "last", "plugins.block": blocked}, environ={})


def test_a_default_that_is_not_there_hurts_only_when_it_is_asked_for(site):
    declare(site)
    loaded = load()
    assert loaded.settings.component("router").name == "first"
    with pytest.raises(ConfigurationError, match="no table for router 'first'"):
        _ = loaded.settings.component("router").settings


def test_a_kind_without_a_default_may_be_left_unchosen(site):
    declare(site, "default=None")
    choice = load().settings.component("router")
    assert choice.table.use is None
    with pytest.raises(ConfigurationError, match="no router is chosen: set"):
        _ = choice.name
    assert load({"router.use": None}).settings.component("router").table.use is None
    assert load({"router.use": "last"}).settings.component("router").name == "last"


def test_a_kind_without_a_table_is_no_setting(site):
    declare(site, "table=None, default=None")
    assert message_of({"router.use": "last"}).startswith("router (argument): no such setting")
    assert "router" in load().registry.kinds


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("seed", "its settings table 'seed' is a setting of the engine"),
        ("component", "its settings table 'component' is a setting of the engine"),
        ("debug", "its settings table 'debug' is a setting of the engine"),
        ("plugin", "its settings table 'plugin' reads like 'plugins'"),
    ],
)
def test_a_table_cannot_take_the_name_of_a_setting(site, table, reason):
    declare(site, f"table={table!r}")
    registry = load_registry({}, environ={})
    assert reason in record_of(registry, "acme-kinds").reason


def test_a_part_of_an_engines_kind_runs_only_beside_a_component_that_uses_it(site):
    declare(site, "part_of='tokenizer'")
    assert "router" not in choose_components(load()).by_kind
    with pytest.raises(ConfigurationError, match=r"router.use = 'last' has no effect, since tokenizer 'auto' decides"):
        choose_components(load({"router.use": "last"}))


def test_a_misspelt_plugin_list_is_refused_before_the_kinds_are_known(site):
    declare(site)
    for arguments in ({"pluggins": {"block": []}, "router.use": "last"}, {"block": ["acme-kinds"]}):
        assert "no such setting; did you mean plugins" in message_of(arguments)
    assert "acme_kinds" not in sys.modules
