"""Every wrong setting is named with its value, its source, and what would be right."""

# pyright: reportAttributeAccessIssue=false

import sys
from typing import Any

import pytest

from enginecore.errors import ConfigurationError, PluginError
from enginecore.scheduling import SchedulingPolicy, policy_component
from enginecore.settings import load_settings
from tests.registry.fake_plugins import SCHEDULER
from tests.settings.making import component, load, make, message_of


@pytest.mark.parametrize(
    ("key", "right"),
    [
        ("max_num_seq", "max_num_seqs"),
        ("plugins.alow", "plugins.allow"),
        ("debug.check_invariant", "debug.check_invariants"),
        ("scheduler.usee", "scheduler.use"),
        ("scheduler.shapes.wieght", "scheduler.shapes.weight"),
        ("scheduler.shapes.part.siz", "scheduler.shapes.part.size"),
        ("check_invariants", "debug.check_invariants"),
        ("scheduler.weight", "scheduler.shapes.weight"),
    ],
)
def test_a_misspelt_key_is_named_in_every_source(tmp_path, key, right):
    *tables, last = key.split(".")
    line = f"{last} = 3\n"
    file = tmp_path / "engine.toml"
    file.write_text(f"[{'.'.join(tables)}]\n{line}" if tables else line)
    variable = f"ENGINECORE_{key.upper().replace('.', '__')}"
    for message, shown in (
        (message_of({key: 3}), "3 (argument)"),
        (message_of(environ={variable: "3"}), f"'3' (environment {variable})"),
        (message_of(config_file=file), f"3 (file {file})"),
    ):
        assert message.startswith(f"{key} = {shown}: no such setting; did you mean {right}")


def test_a_key_like_no_other_lists_those_that_there_are():
    assert message_of({"plugins.xyz": 1}) == (
        "plugins.xyz = 1 (argument): no such setting; here these are known: plugins.allow, plugins.block"
    )


def test_an_unknown_variable_is_an_error_also_when_it_is_nested():
    message = message_of(environ={"ENGINECORE_NOTHING__AT__ALL": "1"})
    assert message.startswith("nothing (environment ENGINECORE_NOTHING__AT__ALL): no such setting")
    assert load(environ={"OTHER_ENGINECORE_SEED": "x", "ENGINECORE": "x"}).settings.seed == 0


def test_all_that_is_wrong_is_said_at_once(tmp_path):
    file = tmp_path / "engine.yaml"
    file.write_text("max_num_seqs: 0\nscheduler: {use: shaeps}\n")
    message = message_of(
        {"dtype": "f32", "executor.oracle.dept": 2}, environ={"ENGINECORE_SEED": "x"}, config_file=file
    )
    first, *lines = message.splitlines()
    assert first == "5 settings are wrong:"
    for start in (
        f"  scheduler.use = 'shaeps' (file {file}): no active plugin offers scheduler 'shaeps'; did you mean shapes?",
        "  dtype = 'f32' (argument): must be 'auto', 'float32', 'bfloat16' or 'float16'",
        f"  max_num_seqs = 0 (file {file}): must be greater than or equal to 1",
        "  seed = 'x' (environment ENGINECORE_SEED): must be a valid integer",
        "  executor.oracle.dept = 2 (argument): no such setting; did you mean executor.oracle.depth",
    ):
        assert [line for line in lines if line.startswith(start)], start


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("max_num_seqs", True, "must be a number, not true or false"),
        ("seed", False, "must be a number, not true or false"),
        ("shutdown_timeout", True, "must be a number, not true or false"),
        ("scheduler.shapes.weight", True, "must be a number, not true or false"),
        ("scheduler.shapes.part.size", True, "must be a number, not true or false"),
        ("scheduler.shapes.count", True, "must be a valid integer"),
        ("max_num_batched_tokens", -1, "must be greater than or equal to 1"),
        ("block_size", 1.5, "must be a valid integer"),
        ("num_kv_blocks", 0, "must be greater than or equal to 1"),
        ("shutdown_timeout", float("nan"), "must be a finite number"),
        ("shutdown_timeout", -0.5, "must be greater than or equal to 0"),
        ("seed", 1 << 63, "must be less than 9223372036854775808"),
        ("model", "", "at least 1 character"),
        ("model", 5, "must be a valid string"),
        ("enable_prefix_caching", "maybe", "must be a valid boolean"),
        ("scheduler", "shapes", "is a table: set scheduler.use instead"),
        ("plugins", ["x"], "is a table: set its keys instead"),
        ("plugins.allow", "fcfs", 'must be a list, such as ["a", "b"]; an empty one is []'),
        ("scheduler.use", 5, "must be a valid string"),
    ],
)
def test_a_wrong_value_gets_a_sentence(key, value, sentence):
    message = message_of({key: value})
    assert message.startswith(f"{key} = {value!r} (argument): ")
    assert sentence in message
    assert "Input should" not in message


def test_the_branches_of_a_union_make_one_sentence():
    assert message_of({"scheduler.shapes.window": "half"}) == (
        "scheduler.shapes.window = 'half' (argument): must be a valid integer, unable to parse string as an integer, "
        "or must be 'whole'"
    )


def test_an_empty_variable_for_a_list_is_neither_empty_nor_unset():
    """Field case 129."""
    assert message_of(environ={"ENGINECORE_PLUGINS__ALLOW": ""}) == (
        "plugins.allow = '' (environment ENGINECORE_PLUGINS__ALLOW): "
        'must be a list, such as ["a", "b"]; an empty one is []'
    )


def test_long_values_are_cut():
    assert len(message_of({"kv_cache_memory": "x" * 5000})) < 400


def test_what_the_chosen_component_requires_must_be_set():
    assert message_of({"scheduler.use": "needy"}) == "scheduler.needy.path: must be set"
    chosen = load({"scheduler.use": "needy", "scheduler.needy.path": "p"}).settings.component("scheduler")
    name, settings = chosen.name, chosen.settings
    assert (name, settings.path, settings.depth) == ("needy", "p", 1)
    assert load().settings.component("scheduler").name == "fcfs"  # not chosen: nothing is required


def test_a_table_of_a_component_that_is_not_loaded_says_why(site):
    site.install("acme-blocked", SCHEDULER.format(name="mine"))
    site.install("acme-broken", "raise ValueError('broken')")
    message = message_of({"scheduler.mine.x": 1, "plugins.block": ["acme-blocked"]})
    assert message.startswith("scheduler.mine (argument): these are settings of a component that is not loaded:")
    assert "blocked: plugin 'acme-blocked' of distribution acme-blocked 1.0: plugins.block names it" in message
    assert "failed: plugin 'acme-broken' of distribution acme-broken 1.0: ValueError: broken" in message


def test_a_component_that_is_offered_twice_can_neither_be_set_nor_used(site):
    """Field case 130."""
    site.install("acme", SCHEDULER.format(name="shapes"))
    for arguments in ({"scheduler.shapes.weight": 1}, {"scheduler.use": "shapes"}):
        message = message_of(arguments)
        assert "the components given as an argument" in message
        assert "plugin 'acme' of distribution acme 1.0" in message
    assert load().settings.scheduler.use == "fcfs"


def test_a_default_that_is_not_there_is_an_error_only_for_whoever_needs_it():
    loaded = load({"plugins.block": ["enginecore-torch"]})
    assert loaded.settings.executor.use == "single"
    with pytest.raises(PluginError, match=r"plugins\.block names it"):
        loaded.registry.get("executor", "single")


def test_nothing_is_imported_if_the_plugin_lists_are_misspelt(site):
    module = site.install("acme", SCHEDULER.format(name="acme"))
    for arguments in ({"plugins.blok": ["acme"]}, {"plugin": {"block": ["acme"]}}):
        assert "no such setting; did you mean plugin" in message_of(arguments)
        assert module not in sys.modules


def test_a_broken_plugin_is_a_warning_and_no_more(site, caplog):
    """Field case 126."""
    site.install("acme-broken", "raise ValueError('broken')")
    load()
    assert "plugin 'acme-broken' of distribution acme-broken 1.0 is left out: ValueError: broken" in caplog.text


def test_a_component_that_breaks_a_rule_is_an_error():
    with pytest.raises(PluginError, match="unknown kind 'policy'"):
        load_settings(components=[component(kind="policy", name="x", factory=make)], environ={})


def test_a_value_that_python_does_not_write_is_named_by_its_type():
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert "seed = list that cannot be shown" in message_of({"seed": deep})
    assert "seed = int that cannot be shown" in message_of({"seed": 10**5000})
    assert "kv_cache_memory = int that cannot be shown" in message_of({"kv_cache_memory": 10**5000})


class Aging(SchedulingPolicy):
    """Its setting is spelt unlike that of the bundled policies."""

    def __init__(self, aging: float = 1.0) -> None:
        self.aging = aging

    def rank(self, request: Any, scheduler: Any) -> float:
        return float(request.arrival)


def test_a_slip_within_a_table_is_answered_from_that_table_although_others_have_the_key():
    with pytest.raises(ConfigurationError, match=r"did you mean scheduler\.mine\.aging\?"):
        load_settings({"scheduler.mine.ageing": 5}, components=[policy_component("mine", Aging)], environ={})
