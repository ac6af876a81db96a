"""Building of a component, with a check against the interface of its kind."""

import inspect
from typing import Any

from enginecore import interfaces
from enginecore.errors import EngineCoreError, PluginError
from enginecore.plugin import Component
from enginecore.registry.overrides import missing_members, missing_members_in, odd_member


def build_component(component: Component, settings: Any, context: Any, interface: type) -> Any:
    """Call a component's factory, and check what it returns against `interface`.

    Raises:
        EngineCoreError: raised by the factory on purpose.
        PluginError: anything else that it raises; or what it returns is no instance of the
            interface of its kind, leaves out a required member, or overrides one by something that
            cannot be used as the interface says. Names the member and what would be right.
    """
    factory: Any = component.factory
    if inspect.isclass(factory) and interface in factory.__mro__:
        _check_class(component, factory, interface)
    try:
        built = component.factory(settings, context)
    except EngineCoreError:
        raise
    except Exception as error:
        due = missing_members_in(error, interface) if isinstance(error, TypeError) else ""
        raise PluginError(
            f"{component.kind} {component.name!r} cannot be built: {type(error).__name__}: {error}{due}"
        ) from error
    _check_class(component, type(built), interface)
    return built


def _check_class(component: Component, cls: type, interface: type) -> None:
    if interface not in cls.__mro__:
        problem: str | None = f"subclass {_path_of(interface)}"
    else:
        problem = missing_members(cls, interface) or odd_member(cls, interface)
    if problem:
        raise PluginError(
            f"{component.kind} {component.name!r} made a {cls.__name__}, which is no {interface.__name__}: {problem}"
        )


def _path_of(interface: type) -> str:
    """Where plugin authors import it from."""
    public = vars(interfaces).get(interface.__name__) is interface
    return f"{interfaces.__name__ if public else interface.__module__}.{interface.__name__}"
