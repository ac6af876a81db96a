"""Builds a component, and checks that it is what its kind says."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from enginecore.errors import EngineCoreError, PluginError
from enginecore.plugin import Component


def build_component(component: Component, settings: Any, context: Any, interface: type) -> Any:
    """Call a component's factory, and check what it returns against `interface`.

    Raises:
        EngineCoreError: raised by the factory on purpose.
        PluginError: the factory raises something else; or its result lacks members of the interface, or has
            methods that cannot be called as the interface says. Names them.
    """
    try:
        built = component.factory(settings, context)
    except EngineCoreError:
        raise
    except Exception as error:
        raise PluginError(
            f"{component.kind} {component.name!r} cannot be built: {type(error).__name__}: {error}"
        ) from error
    _check_interface(component, built, interface)
    return built


def _check_interface(component: Component, built: object, interface: type) -> None:
    """Types are a type checker's affair; what is missing or takes other arguments would fail amid a step."""
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
