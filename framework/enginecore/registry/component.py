"""Calling a component's factory, and looking at what comes out."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from enginecore.errors import EngineCoreError, PluginError
from enginecore.interfaces import (
    ChannelTransport,
    EvictionOrder,
    Executor,
    KVCacheManager,
    Scheduler,
    Tokenizer,
    Transport,
    VictimChoice,
)
from enginecore.plugin import Component, Kind

INTERFACES: Mapping[Kind, type] = {
    "scheduler": Scheduler,
    "victim": VictimChoice,
    "kv_cache_manager": KVCacheManager,
    "eviction": EvictionOrder,
    "executor": Executor,
    "transport": Transport,
    "tokenizer": Tokenizer,
}


def build_component(component: Component, settings: Any, context: Any) -> Any:
    """Call a component's factory.

    Raises:
        EngineCoreError: raised by the factory on purpose.
        PluginError: anything else that it raises, or what it returns lacks members of its interface, or has methods
            that cannot be called as the interface says; names them.
    """
    try:
        built = component.factory(settings, context)
    except EngineCoreError:
        raise
    except Exception as error:
        raise PluginError(
            f"{component.kind} {component.name!r} cannot be built: {type(error).__name__}: {error}"
        ) from error
    _check_interface(component, built)
    return built


def _check_interface(component: Component, built: object) -> None:
    """Types are a type checker's affair; what is missing or takes other arguments would fail amid a step."""
    interface = ChannelTransport if "channels" in component.capabilities else INTERFACES[component.kind]
    due = {name: member for name, member in vars(interface).items() if _is_due(interface, name, member)}
    methods = {name: member for name, member in due.items() if inspect.isfunction(member)}
    missing = [
        f"{name}()" if name in methods else name for name in due if not _offers(built, name, method=name in methods)
    ]
    problem = f"it lacks {', '.join(missing)}" if missing else _odd_method(built, methods)
    if problem:
        raise PluginError(
            f"{component.kind} {component.name!r} made a {type(built).__name__}, which is no {interface.__name__}: "
            f"{problem}"
        )


def _is_due(interface: type, name: str, member: object) -> bool:
    """Whether a component must have it: all that is public, and special methods such as `__len__`."""
    is_own = inspect.isfunction(member) and member.__module__ == interface.__module__  # not what Protocol adds
    return not name.startswith("_") or is_own


def _offers(built: object, name: str, *, method: bool) -> bool:
    if not method:
        return hasattr(type(built), name) or hasattr(built, name)
    return callable(getattr(built, name, None))


def _odd_method(built: object, methods: Mapping[str, Callable[..., Any]]) -> str | None:
    """Which method cannot be called as its interface says, and why."""
    for name, method in methods.items():
        wanted = inspect.signature(method)
        parameters = list(wanted.parameters.values())[1:]  # without self
        named = {one.name: None for one in parameters if one.kind in (one.KEYWORD_ONLY, one.VAR_KEYWORD)}
        try:
            inspect.signature(getattr(built, name)).bind(*parameters[: len(parameters) - len(named)], **named)
        except TypeError as error:
            return f"{name} must take {wanted}: {error}"
    return None
