"""Calling a component's factory, and looking at what comes out."""

import inspect
from collections.abc import Mapping
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
        PluginError: anything else that it raises, or what it returns lacks members of its interface; names them.
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
    """Types are a type checker's affair; a member that is missing would be noticed only in the middle of a step."""
    interface = ChannelTransport if "channels" in component.capabilities else INTERFACES[component.kind]
    missing = [
        f"{name}()" if inspect.isfunction(member) else name
        for name, member in vars(interface).items()
        if _is_due(interface, name, member) and not _offers(built, name, method=inspect.isfunction(member))
    ]
    if missing:
        raise PluginError(
            f"{component.kind} {component.name!r} made a {type(built).__name__}, which is no {interface.__name__}: "
            f"it lacks {', '.join(missing)}"
        )


def _is_due(interface: type, name: str, member: object) -> bool:
    """Whether a component must have it: all that is public, and special methods such as `__len__`."""
    is_own = inspect.isfunction(member) and member.__module__ == interface.__module__  # not what Protocol adds
    return not name.startswith("_") or is_own


def _offers(built: object, name: str, *, method: bool) -> bool:
    if not method:
        return hasattr(type(built), name) or hasattr(built, name)
    return callable(getattr(built, name, None))
