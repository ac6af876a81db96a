"""Asking for a component by kind and name."""

import pytest

from enginecore.errors import PluginError
from enginecore.plugin import Component
from enginecore.registry import Registry
from tests.registry.fake_plugins import SCHEDULER


def make(settings, context):
    return None


def error_for(registry, name="mine", kind="scheduler"):
    with pytest.raises(PluginError) as error:
        registry.get(kind, name)
    return str(error.value)


def test_a_misspelt_name_gets_the_closest_ones_and_all_that_are_offered(site):
    site.install("acme", SCHEDULER.format(name="lottery"))
    registry = Registry.discover()
    message = error_for(registry, "lotterie")
    assert "no active plugin offers scheduler 'lotterie'; did you mean lottery?" in message
    offered = sorted(component.name for component in registry.components("scheduler"))
    assert {"fcfs", "lottery"} <= set(offered)
    assert f"offered: {', '.join(offered)}" in message


def test_a_name_of_another_kind_is_not_found():
    assert "no active plugin offers transport 'fcfs'" in error_for(Registry.discover(), "fcfs", "transport")


def test_an_error_names_what_failed_and_what_is_blocked(site):
    """Field case 129."""
    site.install("acme-broken", "import no_such_module_anywhere")
    site.install("acme-blocked", SCHEDULER.format(name="mine"))
    message = error_for(Registry.discover(block=["acme-blocked"]))
    assert (
        "failed: plugin 'acme-broken' of distribution acme-broken 1.0: "
        "ModuleNotFoundError: No module named 'no_such_module_anywhere'" in message
    )
    assert "blocked: plugin 'acme-blocked' of distribution acme-blocked 1.0: plugins.block names it" in message


def test_the_only_broken_plugin_shows_its_traceback(site):
    """Field case 126: to ask for what is broken is an error."""
    site.install("acme-broken", "1 / 0")
    assert "ZeroDivisionError: division by zero\n" in error_for(Registry.discover()) + "\n"
    assert "Traceback" in error_for(Registry.discover())


def test_of_several_broken_plugins_the_one_with_the_name_shows_its_traceback(site):
    site.install("acme-mine", "raise ValueError('this one')")
    site.install("acme-other", "raise ValueError('that one')")
    message = error_for(Registry.discover(), "mine")
    assert message.count("Traceback") == 1
    assert message.count("ValueError: this one") == 2  # as the reason, and in the traceback
    assert message.count("ValueError: that one") == 1
    assert "Traceback" not in error_for(Registry.discover(), "unlike")


def test_two_distributions_with_one_name_are_an_error_for_whoever_asks(site):
    """Field case 130."""
    site.install("acme-one", SCHEDULER.format(name="mine"), version="1.5")
    site.install("acme-two", SCHEDULER.format(name="mine"))
    site.install("acme-three", SCHEDULER.format(name="other"))
    registry = Registry.discover()
    message = error_for(registry)
    assert "plugin 'acme-one' of distribution acme-one 1.5" in message
    assert "plugin 'acme-two' of distribution acme-two 1.0" in message
    assert "plugins.block" in message
    assert registry.get("scheduler", "other").name == "other"
    [(key, records)] = registry.conflicts.items()
    assert key == ("scheduler", "mine")
    assert [record.distribution for record in records] == ["acme-one", "acme-two"]


def test_blocking_one_of_two_settles_it(site):
    """Field case 130."""
    site.install("acme-one", SCHEDULER.format(name="mine"))
    site.install("acme-two", SCHEDULER.format(name="mine"))
    registry = Registry.discover(block=["acme-two"])
    assert registry.get("scheduler", "mine").factory.__module__ == "acme_one"


def test_a_name_of_a_bundled_component_is_not_taken_over(site):
    """Field case 130."""
    site.install("acme", SCHEDULER.format(name="fcfs"))
    message = error_for(Registry.discover(), "fcfs")
    assert "distribution enginecore" in message
    assert "distribution acme" in message


def test_components_as_objects_are_found_and_the_first_registry_stays_as_it_was():
    mine = Component(kind="scheduler", name="mine", factory=make)
    registry = Registry.discover()
    more = registry.with_components([mine])
    assert more.get("scheduler", "mine") is mine
    assert mine in more.components("scheduler")
    assert "no active plugin offers" in error_for(registry)


def test_components_as_objects_beat_nothing():
    registry = Registry.discover().with_components([Component(kind="scheduler", name="fcfs", factory=make)])
    message = error_for(registry, "fcfs")
    assert "the components given as an argument" in message
    assert "plugin 'enginecore-schedulers' of distribution enginecore" in message


def test_components_as_objects_obey_the_rules_of_plugins():
    with pytest.raises(PluginError, match="this name is reserved"):
        Registry.discover().with_components([Component(kind="scheduler", name="use", factory=make)])


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no_such_module:COMPONENT", "No module named 'no_such_module'"),
        ("tests.registry.importable:NOTHING", "has no attribute 'NOTHING'"),
        ("tests.registry.importable:make", "must name a Component"),
        ("os:system", "must name a Component"),
        ("tests.registry.importable", "give 'module:NAME'"),
        ("", "give 'module:NAME'"),
    ],
)
def test_a_component_by_name_must_be_one(name, problem):
    """Field case 138: the operator names it, and a wrong name is an error at start."""
    with pytest.raises(PluginError, match=problem):
        Registry.discover().with_components([name])
