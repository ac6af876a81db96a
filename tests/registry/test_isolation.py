"""A broken plugin is a record with its reason: it stops nobody else, and nothing of it stays behind."""

import pytest

from enginecore.registry import Registry
from tests.registry.fake_plugins import SCHEDULER, names, record_of

HEAD = """
from pydantic import BaseModel

from enginecore.plugin import Component, ComponentSettings, hookimpl


def make(settings, context):
    return None


"""


def offers(components):
    return f"{HEAD}@hookimpl\ndef enginecore_components():\n    return {components}\n"


def component(**changes):
    words = {"kind": "'scheduler'", "name": "'mine'", "factory": "make"} | changes
    return offers(f"[Component({', '.join(f'{key}={value}' for key, value in words.items())})]")


def reason_of(site, source):
    """Install it between two good plugins, which must stay active; return why it is left out."""
    site.install("aaa-good", SCHEDULER.format(name="first"))
    site.install("broken", source)
    site.install("zzz-good", SCHEDULER.format(name="last"))
    registry = Registry.discover()
    record = record_of(registry, "broken")
    assert (record.status, record.components) == ("failed", ())
    assert {"first", "last"} <= set(names(registry))
    assert not registry.observers.has_step_observers
    assert not registry.observers.has_request_observers
    return record.reason


RAISING = {
    "missing dependency": ("import no_such_module_anywhere", "ModuleNotFoundError: No module named 'no_such_module"),
    "no python": ("def broken(:", "SyntaxError"),
    "exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "own base exception": ("class Odd(BaseException): ...\nraise Odd('odd')", "Odd: odd"),
    "in the hook": (f"{HEAD}@hookimpl\ndef enginecore_components():\n    raise KeyError('gone')", "KeyError: 'gone'"),
    "exit in the hook": (f"{HEAD}@hookimpl\ndef enginecore_components():\n    exit(1)", "SystemExit: 1"),
    "half of the hook": (
        f"{HEAD}@hookimpl\ndef enginecore_components():\n"
        "    yield Component(kind='scheduler', name='half', factory=make)\n    raise OSError('no more')\n\n"
        "@hookimpl\ndef enginecore_step_finished(record):\n    raise SystemExit\n",
        "OSError: no more",
    ),
}


@pytest.mark.parametrize("case", RAISING)
def test_what_a_plugin_raises_is_kept_with_its_traceback(site, case):
    """Field case 126."""
    source, reason = RAISING[case]
    assert reason in reason_of(site, source)
    record = record_of(Registry.discover(), "broken")
    assert "Traceback" in record.traceback
    assert "broken.py" in record.traceback


def test_ctrl_c_is_not_swallowed(site):
    site.install("broken", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        Registry.discover()


HOOKS = {
    "misspelt": (
        f"{HEAD}@hookimpl\ndef enginecore_component():\n    return []",
        "there is no hook 'enginecore_component'; did you mean enginecore_components",
    ),
    "misspelt, unmarked": (
        f"{HEAD}def enginecore_step_finish(record):\n    ...",
        "there is no hook 'enginecore_step_finish'; did you mean enginecore_step_finished",
    ),
    "misspelt beside a good one": (
        component() + "\n@hookimpl\ndef enginecore_request_finishd(record):\n    ...",
        "did you mean enginecore_request_finished",
    ),
    "misspelt prefix": (
        component() + "\ndef engincore_step_finished(record):\n    ...",
        "there is no hook 'engincore_step_finished'; did you mean enginecore_step_finished",
    ),
    "misspelt by specname": (
        f"{HEAD}@hookimpl(specname='enginecore_components_')\ndef offer():\n    return []",
        "there is no hook 'enginecore_components_'; did you mean enginecore_components",
    ),
    "unlike any": (
        component() + "\ndef enginecore_xyz():\n    ...",
        "there is no hook 'enginecore_xyz'",
    ),
    "not marked": (
        f"{HEAD}def enginecore_components():\n    return []",
        "enginecore_components is the name of a hook but lacks @hookimpl",
    ),
    "no function": (
        f"{HEAD}enginecore_components = []",
        "enginecore_components is the name of a hook but lacks @hookimpl",
    ),
    "none at all": (HEAD, "it implements no hook"),
    "wrong argument": (
        component() + "\n@hookimpl\ndef enginecore_step_finished(step):\n    ...",
        "Argument(s) {'step'} are declared",
    ),
    "coroutine": (
        component() + "\n@hookimpl\nasync def enginecore_step_finished(record):\n    ...",
        "enginecore_step_finished() must be a plain function",
    ),
    "generator": (
        component() + "\n@hookimpl\ndef enginecore_step_finished(record):\n    yield",
        "enginecore_step_finished() must be a plain function",
    ),
    "twice, by specname": (
        component() + "\n@hookimpl(specname='enginecore_components')\ndef more():\n    return []",
        "it implements enginecore_components 2 times",
    ),
    "wrapper": (
        f"{HEAD}@hookimpl(wrapper=True)\ndef enginecore_components():\n    return (yield)",
        "enginecore_components() is a hook wrapper",
    ),
}


@pytest.mark.parametrize("case", HOOKS)
def test_a_hook_that_would_never_be_called_is_an_error(site, case):
    """Field case 137."""
    source, reason = HOOKS[case]
    assert reason in reason_of(site, source)


def test_an_entry_point_must_name_a_module(site):
    site.install("broken", component())
    points = site.path / "broken-1.0.dist-info" / "entry_points.txt"
    points.write_text("[enginecore.plugins.v1]\nbroken = broken:make\n")
    assert "must name a module" in record_of(Registry.discover(), "broken").reason


def test_a_module_that_two_entry_points_name_is_registered_once(site):
    site.install("acme", SCHEDULER.format(name="acme"))
    site.declare("acme-renamed", {"acme-renamed": "acme"})
    registry = Registry.discover()
    assert record_of(registry, "acme").status == "active"
    assert "registered already, as acme (acme)" in record_of(registry, "acme-renamed").reason
    assert registry.get("scheduler", "acme").name == "acme"


LOOSE = "class Loose(BaseModel):\n    model_config = {'frozen': True}\n"
THAWED = "class Thawed(BaseModel):\n    model_config = {'extra': 'forbid'}\n"

COMPONENTS = {
    "no list": (offers("None"), "must return a list of Components, not None"),
    "one component": (offers("Component(kind='scheduler', name='x', factory=make)"), "must return a list of Comp"),
    "no component": (offers("['fcfs']"), "must return Components; one of them is 'fcfs'"),
    "kind": (component(kind="'sheduler'"), "unknown kind 'sheduler'; did you mean scheduler"),
    "name with a space": (component(name="'my own'"), "the name 'my own'"),
    "name with two underscores": (component(name="'a__b'"), "the name 'a__b'"),
    "no name": (component(name="None"), "the name None"),
    "name of the table's own key": (component(name="'use'"), "'use': this name is reserved"),
    "capability": (
        component(capabilities="frozenset({'prefix_cachin'})"),
        "unknown capability 'prefix_cachin'; did you mean prefix_caching",
    ),
    "capability of another kind": (component(capabilities="frozenset({'asyncio'})"), "unknown capability 'asyncio'"),
    "capabilities as text": (component(capabilities="'prefix_caching'"), "capabilities must be a frozenset of words"),
    "factory": (component(factory="'make'"), "factory must be callable"),
    "factory's arguments": (component(factory="lambda settings: None"), "must take two arguments"),
    "settings are no model": (component(settings="dict"), "settings must be a pydantic model class"),
    "settings are an instance": (component(settings="ComponentSettings()"), "settings must be a pydantic model class"),
    "settings accept anything": (f"{component(settings='Loose')}\n{LOOSE}", "Loose must have extra='forbid'"),
    "settings can be changed": (f"{component(settings='Thawed')}\n{THAWED}", "Thawed must have frozen=True"),
    "inner settings accept anything": (
        f"{component(settings='Outer')}\n{LOOSE}\nclass Outer(ComponentSettings):\n    parts: list[Loose] = []\n",
        "Loose must have extra='forbid'",
    ),
    "settings with wrong defaults": (
        f"{component(settings='Wrong')}\nclass Wrong(ComponentSettings, validate_default=True):\n    n: int = 'x'\n",
        "the defaults of Wrong do not satisfy it",
    ),
    "settings with two names": (
        f"{component(settings='Two')}\nfrom pydantic import Field\n"
        "class Two(ComponentSettings):\n    n: int = Field(1, alias='m')\n",
        "Two.n has an alias",
    ),
    "summary": (component(summary="'two\\nlines'"), "summary must be one line"),
    "twice": (
        offers(
            "[Component(kind='scheduler', name='x', factory=make), Component(kind='scheduler', name='X', factory=make)]"
        ),
        "it offers scheduler 'X' twice",
    ),
}


@pytest.mark.parametrize("case", COMPONENTS)
def test_a_component_that_breaks_a_rule_fails_its_plugin(site, case):
    source, reason = COMPONENTS[case]
    assert reason in reason_of(site, source)


def test_one_bad_component_takes_the_good_ones_along(site):
    """Field case 126: nothing is registered half."""
    good = "Component(kind='scheduler', name='good', factory=make)"
    site.install("broken", offers(f"[{good}, Component(kind='scheduler', name='bad', factory=None)]"))
    registry = Registry.discover()
    assert "good" not in names(registry)
    assert "scheduler 'bad'" in record_of(registry, "broken").reason
