"""Kinds of component that plugins add: rows, their rules, and what becomes of components without a kind."""

from types import SimpleNamespace

import pytest

from enginecore.errors import PluginError
from enginecore.kinds import KINDS
from enginecore.plugin import Component
from enginecore.registry import Registry
from tests.registry.fake_plugins import ROUTER, ROUTER_KIND, SCHEDULER, names, record_of


def declares(**changes):
    """The source of a plugin that declares `router` with these changes, given as Python expressions."""
    return ROUTER_KIND.format(changes=", ".join(f"{key}={value}" for key, value in changes.items()))


@pytest.mark.parametrize(("kind_in", "component_in"), [("aaa-kind", "zzz-part"), ("zzz-kind", "aaa-part")])
def test_a_component_of_a_plugins_kind_is_found_in_any_order(site, kind_in, component_in):
    site.install(kind_in, declares())
    site.install(component_in, ROUTER.format(name="last"))
    registry = Registry.discover()
    assert (record_of(registry, kind_in).status, record_of(registry, component_in).status) == ("active", "active")
    assert list(registry.kinds)[: len(KINDS)] == [kind.name for kind in KINDS]
    assert registry.kinds["router"].default == "first"
    router = registry.build(registry.get("router", "last"), SimpleNamespace(start=1), SimpleNamespace(num_engines=3))
    assert router.route("request") == 3


def test_one_plugin_may_bring_a_kind_and_its_components(site):
    site.install("acme", declares() + ROUTER.format(name="last").replace("from", "\nfrom", 1))
    registry = Registry.discover()
    assert record_of(registry, "acme").status == "active"
    assert names(registry, "router") == ["last"]


def test_the_result_of_a_factory_must_fill_the_kinds_interface(site):
    site.install("acme", declares())
    registry = Registry.discover().with_components(
        [Component(kind="router", name="none", factory=lambda settings, context: object())]
    )
    with pytest.raises(PluginError, match="router 'none' made a object, which is no Router"):
        registry.build(registry.get("router", "none"), None, None)


def test_capabilities_are_those_of_the_row(site):
    site.install("acme", declares())
    site.install("good", ROUTER.format(name="last").replace("summary", "capabilities=frozenset({'sticky'}), summary"))
    site.install("bad", ROUTER.format(name="bad").replace("summary", "capabilities=frozenset({'stiky'}), summary"))
    registry = Registry.discover()
    assert names(registry, "router") == ["last"]
    assert "unknown capability 'stiky'; did you mean sticky?" in record_of(registry, "bad").reason


def test_a_kind_that_is_part_of_another_adds_a_capability_to_it(site):
    site.install("acme", declares(part_of="'executor'"))
    uses = SCHEDULER.format(name="uses").replace("scheduler", "executor")
    site.install("uses", uses.replace("summary", "capabilities=frozenset({'router'}), summary"))
    assert names(Registry.discover(), "executor").count("uses") == 1


BROKEN = {
    "name": ({"name": "'Router'"}, "a kind has the name 'Router'; a name is lower-case words joined by single '_'"),
    "name of the engine's": ({"name": "'scheduler'"}, "kind 'scheduler' is declared twice, or is the engine's own"),
    "keyword": ({"name": "'lambda'"}, "a kind has the name 'lambda'"),
    "reserved": ({"name": "'use'"}, "kind 'use': this name is reserved"),
    "summary": ({"summary": "''"}, "kind 'router': summary must be one line of text, not ''"),
    "interface": ({"interface": "Router.route"}, "kind 'router': interface must be a class"),
    "context": ({"context": "3"}, "kind 'router': context must be a class or None, not 3"),
    "table of the engine's": ({"table": "'tokenization'"}, "another kind has the settings table 'tokenization'"),
    "table without words": ({"table": "'my router'"}, "kind 'router' has the settings table 'my router'"),
    "default without a table": ({"table": "None"}, "default and part_of are about its settings table"),
    "default": ({"default": "'my own'"}, "default must be the name of a component or None, not 'my own'"),
    "capabilities": ({"capabilities": "{'sticky'}"}, "capabilities must be a dict of words and their meanings"),
    "part of none": ({"part_of": "'executer'"}, "part of the unknown kind 'executer'; did you mean executor?"),
    "part of a part": ({"part_of": "'victim'"}, "cannot be part of 'victim', which is itself part of 'scheduler'"),
    "kit": ({"kit": "'acme kits'"}, "kit must be 'module' or 'module:NAME', not 'acme kits'"),
    "network": ({"opens_network": "'yes'"}, "opens_network must be True or False, not 'yes'"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_row_that_breaks_a_rule_fails_its_plugin_alone(site, case):
    changes, reason = BROKEN[case]
    site.install("broken", declares(**changes))
    site.install("good", SCHEDULER.format(name="good"))
    registry = Registry.discover()
    record = record_of(registry, "broken")
    assert record.status == "failed"
    assert reason in record.reason
    assert "good" in names(registry)
    assert {"router", changes.get("name", "")}.isdisjoint(registry.kinds.keys() - {kind.name for kind in KINDS})


def test_kinds_must_be_a_list_of_rows(site):
    site.install("acme", declares().replace("return [KindSpec(**", "return ['router']\n    [KindSpec(**"))
    site.install("acme-one", declares().replace("return [", "return ([").replace("))]", "))])[0]"))
    registry = Registry.discover()
    assert "enginecore_kinds() must return KindSpecs; one of them is 'router'" in record_of(registry, "acme").reason
    assert "enginecore_kinds() must return a list of KindSpecs" in record_of(registry, "acme-one").reason


@pytest.mark.parametrize(
    ("changes", "claim"),
    [({}, "kind 'router' is declared by"), ({"name": "'balancer'"}, "the settings table 'router' of kind")],
)
def test_two_plugins_with_one_kind_fail_both_and_are_named(site, changes, claim):
    site.install("acme-one", declares())
    site.install("acme-two", declares(**changes))
    registry = Registry.discover()
    for one, other in (("acme-one", "acme-two"), ("acme-two", "acme-one")):
        record = record_of(registry, one)
        assert record.status == "failed"
        assert claim in record.reason
        assert (
            f"plugin '{other}' of distribution {other} 1.0 as well: leave one out with plugins.block" in record.reason
        )
    assert record_of(Registry.discover(block=["acme-two"]), "acme-one").status == "active"


def test_a_failed_plugin_takes_its_kinds_along_and_who_needs_them_says_so(site):
    site.install("acme-parts", ROUTER.format(name="last"))
    site.install("kinds", declares() + "\n\n@hookimpl\ndef enginecore_components():\n    return [3]\n")
    registry = Registry.discover()
    assert "router" not in registry.kinds
    assert record_of(registry, "acme-parts").reason.startswith("component 'last' has the unknown kind 'router'")


def test_a_kind_that_is_known_to_be_lost_names_the_plugin_that_brings_it(site):
    """What a plugin declares is known even if a component of it is of an unknown kind."""
    site.install("acme-parts", ROUTER.format(name="last"))
    odd = ROUTER.format(name="odd").replace('kind="router"', 'kind="rooter"')
    site.install("kinds", declares() + odd)
    registry = Registry.discover()
    assert "unknown kind 'rooter'; did you mean router?" in record_of(registry, "kinds").reason
    reason = record_of(registry, "acme-parts").reason
    assert "unknown kind 'router'; the kinds are scheduler, victim, kv_cache_manager, eviction, " in reason
    assert ". It comes from plugin 'kinds' of distribution kinds 1.0, which failed: component 'odd'" in reason


def test_a_component_of_an_unknown_kind_names_the_plugins_that_may_have_brought_it(site):
    site.install("acme-broken", "import no_such_module_anywhere")
    site.install("acme-parts", ROUTER.format(name="last"))
    registry = Registry.discover()
    assert (
        "It may come from plugin 'acme-broken' of distribution acme-broken 1.0, which failed: ModuleNotFoundError"
        in record_of(registry, "acme-parts").reason
    )
    with pytest.raises(PluginError, match=r"no kind of component 'router'.* It may come from plugin 'acme-broken'"):
        registry.get("router", "last")


def test_a_kind_that_opens_a_network_surface_needs_an_allow_list(site):
    site.install("acme-kinds", declares(opens_network="True"))
    site.install("acme-parts", ROUTER.format(name="last"))
    registry = Registry.discover()
    record = record_of(registry, "acme-parts")
    assert record.status == "blocked"
    assert "it opens a network surface (router last), so plugins.allow must name it" in record.reason
    assert [component.name for component in record.components] == ["last"]
    allowed = Registry.discover(allow=["enginecore", "acme-kinds", "acme-parts"])
    assert names(allowed, "router") == ["last"]
