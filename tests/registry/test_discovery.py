"""Which plugins are found, and which of them may be imported."""

import sys

import pytest

from enginecore.errors import ConfigurationError
from enginecore.registry import Registry
from enginecore.settings import load_settings
from tests.registry.fake_plugins import SCHEDULER, TRANSPORT, Site, names, record_of


def test_bundled_plugins_are_found_as_anybodys():
    registry = Registry.discover()
    bundled = {record.entry_point: record for record in registry.plugins if record.distribution == "enginecore"}
    assert bundled.keys() >= {"enginecore-schedulers", "enginecore-kv-cache", "enginecore-torch", "enginecore-inproc"}
    assert registry.get("executor", "oracle").kind == "executor"


def test_an_installed_plugin_is_active(site):
    site.install("acme-sched", SCHEDULER.format(name="acme"), entry_point="acme-entry", version="2.5")
    registry = Registry.discover()
    record = record_of(registry, "acme-sched")
    assert (record.entry_point, record.module, record.version) == ("acme-entry", "acme_sched", "2.5")
    assert (record.status, record.reason) == ("active", "")
    assert registry.get("scheduler", "acme") is record.components[0]


def test_installing_changes_no_default(site):
    """Field case 134."""
    site.install("aaa-sched", SCHEDULER.format(name="aaa"))
    loaded = load_settings(environ={})
    assert loaded.registry.get("scheduler", "aaa")
    assert loaded.settings.component("scheduler").name == "fcfs"
    [bundled] = [r for r in loaded.registry.plugins if r.entry_point == "enginecore-schedulers"]
    assert loaded.registry.get("scheduler", "fcfs") in bundled.components


@pytest.mark.parametrize("word", ["acme-entry", "acme-sched", "Acme_Sched", "ACME.entry"])
def test_block_takes_entry_point_or_distribution_and_acts_before_import(site, word):
    module = site.install("acme-sched", SCHEDULER.format(name="acme"), entry_point="acme-entry")
    registry = Registry.discover(block=[word])
    assert (record_of(registry, "acme-sched").status, names(registry).count("acme")) == ("blocked", 0)
    assert "plugins.block" in record_of(registry, "acme-sched").reason
    assert module not in sys.modules


def test_allow_leaves_everything_else_out_before_import(site):
    site.install("acme-sched", SCHEDULER.format(name="acme"))
    other = site.install("other-sched", SCHEDULER.format(name="other"))
    registry = Registry.discover(allow=["acme-sched", "enginecore-inproc"])
    active = {record.entry_point for record in registry.plugins if record.status == "active"}
    assert active == {"acme-sched", "enginecore-inproc"}
    assert "plugins.allow" in record_of(registry, "other-sched").reason
    assert other not in sys.modules


def test_allow_by_distribution_lets_all_of_its_plugins_in():
    registry = Registry.discover(allow=["enginecore"])
    assert "enginecore-schedulers" in {r.entry_point for r in registry.plugins if r.status == "active"}


def test_block_beats_allow(site):
    site.install("acme-sched", SCHEDULER.format(name="acme"))
    registry = Registry.discover(allow=["acme-sched"], block=["acme-sched"])
    assert record_of(registry, "acme-sched").status == "blocked"


def test_an_empty_allow_list_is_not_an_unset_one():
    """Field case 129."""
    assert {record.status for record in Registry.discover(allow=[]).plugins} == {"blocked"}


@pytest.mark.parametrize("lists", [{"allow": ["acme-shed"]}, {"block": ["acme-shed"]}])
def test_a_list_that_names_nothing_is_an_error_that_lists_what_was_found(site, lists):
    """Field case 129."""
    site.install("acme-sched", SCHEDULER.format(name="acme"), entry_point="acme-entry")
    with pytest.raises(ConfigurationError) as error:
        Registry.discover(**lists)
    message = str(error.value)
    assert f"plugins.{next(iter(lists))} names 'acme-shed'" in message
    assert "did you mean acme-sched" in message
    assert "acme-entry (acme-sched)" in message
    assert "enginecore-conformance (enginecore)" in message


def test_one_distribution_twice_on_the_path_is_no_duplicate_of_itself(site, tmp_path, monkeypatch):
    """Field case 130."""
    site.install("acme-sched", SCHEDULER.format(name="acme"), version="2.0")
    (tmp_path / "older").mkdir()
    Site(tmp_path / "older").install("acme-sched", SCHEDULER.format(name="acme"), version="1.0")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "older")])
    registry = Registry.discover()
    assert record_of(registry, "acme-sched").version == "2.0"
    assert registry.get("scheduler", "acme").name == "acme"


def test_what_an_older_copy_declares_does_not_count(site, tmp_path, monkeypatch):
    """Field case 129: metadata that is stale."""
    site.declare("acme-sched", {}, version="2.0")
    (tmp_path / "older").mkdir()
    Site(tmp_path / "older").install("acme-sched", SCHEDULER.format(name="acme"), version="1.0")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "older")])
    assert "acme-sched" not in {record.distribution for record in Registry.discover().plugins}


def test_a_plugin_for_another_interface_says_what_it_needs(site):
    """Field case 132."""
    module = site.install("acme-sched", SCHEDULER.format(name="acme"), group="enginecore.plugins.v2")
    record = record_of(Registry.discover(), "acme-sched")
    assert (record.status, record.reason) == ("failed", "it needs plugin interface v2; this enginecore has v1")
    assert module not in sys.modules


def test_a_plugin_for_two_interfaces_counts_once(site):
    site.install("acme-sched", SCHEDULER.format(name="acme"))
    points = site.path / "acme_sched-1.0.dist-info" / "entry_points.txt"
    points.write_text(points.read_text() + "[enginecore.plugins.v2]\nacme-sched = acme_sched_v2\n")
    assert record_of(Registry.discover(), "acme-sched").status == "active"


def test_damaged_metadata_is_a_record_and_stops_nobody(site):
    site.install("acme-sched", SCHEDULER.format(name="acme"))
    damaged = site.declare("damaged", {})
    (damaged / "entry_points.txt").write_text("[enginecore.plugins.v1]\nthis is no entry point\n")
    registry = Registry.discover()
    [record] = [record for record in registry.failed if "metadata" in record.reason]
    assert record.distribution == str(site.path)
    assert registry.get("scheduler", "acme").name == "acme"


def test_a_third_partys_transport_is_blocked_unless_it_is_named(site):
    site.install("acme-net", TRANSPORT.format(name="acme"))
    registry = Registry.discover()
    record = record_of(registry, "acme-net")
    assert record.status == "blocked"
    assert "network surface" in record.reason
    assert "plugins.allow" in record.reason
    assert [component.name for component in record.components] == ["acme"]
    assert "acme" not in names(registry, "transport")

    allowed = Registry.discover(allow=["enginecore", "acme-net"])
    assert names(allowed, "transport").count("acme") == 1


def test_a_blocked_transport_takes_its_whole_plugin_along_observers_included(site):
    source = SCHEDULER.format(name="acme").replace(
        "    return [",
        '    return [Component(kind="transport", name="acme", factory=make), ',
    )
    source += "\n@hookimpl\ndef enginecore_step_finished(record):\n    raise SystemExit\n"
    site.install("acme-net", source)
    registry = Registry.discover()
    assert record_of(registry, "acme-net").status == "blocked"
    assert "acme" not in names(registry)
    assert not registry.observers.has_step_observers
