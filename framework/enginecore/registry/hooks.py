"""Hooks of a plugin: checks of its functions, and calls of those that return a list."""

import inspect
from collections.abc import Iterable
from difflib import get_close_matches
from types import ModuleType
from typing import Any

import pluggy

from enginecore.errors import PluginError
from enginecore.plugin import HookSpecs
from enginecore.registry.spelling import closest

HOOKS = tuple(name for name in vars(HookSpecs) if name.startswith("enginecore_"))

_ALIKE = 0.85  # all hooks begin alike

_OFFERS = frozenset({"enginecore_commands", "enginecore_components", "enginecore_kinds"})
"""Hooks that return a list. They are called once, and may be generators."""

_MARK = "enginecore_impl"  # the attribute that pluggy's marker sets


def check_hooks(plugin: object) -> None:
    """Refuse a plugin with a function that looks like a hook and would never be called.

    Argument names are left to pluggy, which checks them on registration.

    Raises:
        PluginError: names the function and the hook that it is closest to.
    """
    if not isinstance(plugin, ModuleType):
        raise PluginError(f"the entry point must name a module, not {plugin!r}")
    hooks = [hook for name, value in vars(plugin).items() if (hook := _implemented_hook(name, value))]
    if not hooks:
        raise PluginError(f"it implements no hook, so it does nothing; the hooks are {', '.join(HOOKS)}")
    for hook in HOOKS:
        if hooks.count(hook) > 1:
            raise PluginError(f"it implements {hook} {hooks.count(hook)} times")


def _implemented_hook(name: str, value: Any) -> str | None:
    options = getattr(value, _MARK, None) if inspect.isroutine(value) else None
    if options is None:
        _check_unmarked(name, value)
        return None
    hook: str = options["specname"] or name
    if hook not in HOOKS:
        hint = closest(hook, HOOKS, cutoff=_ALIKE) or f"; the hooks are {', '.join(HOOKS)}"
        raise PluginError(f"{name}() is marked with @hookimpl, but there is no hook {hook!r}{hint}")
    if options["wrapper"] or options["hookwrapper"]:
        raise PluginError(f"{name}() is a hook wrapper: hooks of enginecore are called one by one and have no wrappers")
    if inspect.iscoroutinefunction(value) or (hook not in _OFFERS and inspect.isgeneratorfunction(value)):
        raise PluginError(f"{name}() must be a plain function: as a coroutine or generator it would never run")
    return hook


def _check_unmarked(name: str, value: Any) -> None:
    if name in HOOKS:
        raise PluginError(f"{name} is the name of a hook but lacks @hookimpl, so it would never be called")
    looks_like_a_hook = name.startswith("enginecore_") or get_close_matches(name, HOOKS, cutoff=_ALIKE)
    if inspect.isroutine(value) and looks_like_a_hook:
        hint = closest(name, HOOKS, cutoff=_ALIKE) or f"; the hooks are {', '.join(HOOKS)}"
        raise PluginError(f"there is no hook {name!r}{hint}")


def call_offer(manager: pluggy.PluginManager, plugin: object, hook: str, record: type) -> tuple[Any, ...]:
    """Call a hook of one plugin that returns a list of `record`s; empty if it has no such hook.

    Raises:
        PluginError: the hook returns something else. What the plugin itself raises comes through.
    """
    implementations = getattr(manager.hook, hook).get_hookimpls()
    if not any(implementation.plugin is plugin for implementation in implementations):
        return ()
    others = [other for other in manager.get_plugins() if other is not plugin]
    results: list[Any] = manager.subset_hook_caller(hook, remove_plugins=others)()
    offered = results[0] if results else None  # pluggy leaves None out
    if isinstance(offered, record) or not isinstance(offered, Iterable):
        raise PluginError(f"{hook}() must return a list of {record.__name__}s, not {offered!r}")
    items = tuple(offered)
    for item in items:
        if not isinstance(item, record):
            raise PluginError(f"{hook}() must return {record.__name__}s; one of them is {item!r}")
    return items
