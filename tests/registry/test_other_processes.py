"""The registry of a child process is the parent's, however the child was started."""

import json
import multiprocessing
import os
import subprocess
import sys
from types import ModuleType

import pytest

from enginecore.errors import PluginError
from enginecore.plugin import Component
from enginecore.registry import Registry
from tests.registry import importable
from tests.registry.fake_plugins import SCHEDULER


def rebuild(spec, queue):
    """Runs in the child."""
    try:
        registry = Registry.from_spec(json.loads(spec))
    except PluginError as error:
        queue.put(str(error))
        return
    plugins = [(r.entry_point, r.distribution, r.status) for r in registry.plugins]
    queue.put((plugins, sorted(component.name for component in registry.components("scheduler"))))


def in_child(spec, method):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=rebuild, args=(json.dumps(spec), queue))
    child.start()
    answer = queue.get(timeout=60)
    child.join(60)
    assert child.exitcode == 0
    return answer


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_child_has_the_same_plugins_and_components(site, method):
    """Field case 127."""
    site.install("acme", SCHEDULER.format(name="acme"))
    site.install("acme-blocked", SCHEDULER.format(name="blocked"))
    site.install("acme-broken", "raise SystemExit")
    registry = Registry.discover(block=["acme-blocked"]).with_components([importable.COMPONENT])
    plugins, schedulers = in_child(registry.spec(), method)
    assert plugins == [(r.entry_point, r.distribution, r.status) for r in registry.plugins]
    assert ("acme-blocked", "acme-blocked", "blocked") in plugins
    assert ("acme-broken", "acme-broken", "failed") in plugins
    assert schedulers == sorted(component.name for component in registry.components("scheduler"))
    assert {"acme", "fcfs", "named"} <= set(schedulers)


def test_a_child_that_lacks_a_plugin_says_so(site):
    """Field case 127."""
    site.install("acme", SCHEDULER.format(name="acme"))
    spec = Registry.discover().spec()
    spec["plugins"].append(["gone", "gone-dist", "3.1", "active"])
    answer = in_child(spec, "spawn")
    assert "does not have the plugins of its parent" in answer
    assert "only in the parent: gone gone-dist 3.1 active" in answer


def test_a_component_by_name_keeps_its_name(site):
    registry = Registry.discover().with_components(["tests.registry.importable:COMPONENT"])
    assert registry.get("scheduler", "named") is importable.COMPONENT
    assert registry.spec()["components"] == ["tests.registry.importable:COMPONENT"]


def test_an_object_is_found_by_the_top_level_name_that_it_has():
    registry = Registry.discover().with_components([importable.COMPONENT])
    assert registry.spec()["components"] == ["tests.registry.importable:COMPONENT"]


def test_an_object_without_such_a_name_is_refused_with_advice():
    """Field case 127."""
    local = Component(kind="scheduler", name="local", factory=importable.make)
    registry = Registry.discover().with_components([local])
    with pytest.raises(PluginError, match=r"scheduler 'local'.*assign the Component to a name at the top level"):
        registry.spec()


@pytest.mark.parametrize("way", [["script.py"], ["-m", "script"]])
def test_the_script_that_is_run_is_no_module_of_its_children(tmp_path, way):
    script = tmp_path / "script.py"
    script.write_text(
        "from enginecore.errors import PluginError\nfrom enginecore.registry import Registry\n"
        "from tests.registry.importable import make\nfrom enginecore.plugin import Component\n"
        "MINE = Component(kind='scheduler', name='mine', factory=make)\n"
        "try:\n    print(Registry.discover().with_components([MINE]).spec())\n"
        "except PluginError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, *way],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "scheduler 'mine' was given as an object" in done.stdout, done.stderr
    assert "which the script that is run cannot" in done.stdout


def test_an_equal_object_is_not_the_object():
    copy = Component(kind="scheduler", name="named", factory=importable.make, settings=importable.NamedSettings)
    assert copy == importable.COMPONENT
    with pytest.raises(PluginError, match="given as an object"):
        Registry.discover().with_components([copy]).spec()


def test_a_name_in_a_module_made_by_hand_is_no_name(monkeypatch):
    mine = Component(kind="scheduler", name="mine", factory=importable.make)
    module = ModuleType("made_by_hand")
    vars(module)["MINE"] = mine
    monkeypatch.setitem(sys.modules, "made_by_hand", module)
    with pytest.raises(PluginError, match="given as an object"):
        Registry.discover().with_components([mine]).spec()
