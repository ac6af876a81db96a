"""Components that are given as objects, and where another process finds them."""

import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from enginecore.errors import PluginError
from enginecore.plugin import Component


@dataclass(frozen=True, slots=True)
class Located:
    """A component, and the "module:NAME" that imports it, if it was given so."""

    component: Component
    name: str | None = None

    def importable_name(self) -> str:
        """The "module:NAME" that gives this very component in any process.

        Raises:
            PluginError: there is none; says how to get one.
        """
        name = self.name or _find_name(self.component)
        if name is None:
            component, module = self.component, getattr(self.component.factory, "__module__", "?")
            raise PluginError(
                f"{component.kind} {component.name!r} was given as an object and other processes cannot import it: "
                "assign the Component to a name at the top level of a module that can be imported (not of a script), "
                f"best where its factory is ({module}), or give it as the string 'module:NAME'"
            )
        return name


def locate(component: Component | str) -> Located:
    """Look up a component that is given as "module:NAME", or take the object.

    Raises:
        PluginError: neither a Component nor the name of one.
    """
    if not isinstance(component, str):
        return Located(component)
    module_name, _, attribute = component.partition(":")
    try:
        found: Any = getattr(import_module(module_name), attribute)
    except Exception as error:
        raise PluginError(
            f"component {component!r} cannot be imported: {type(error).__name__}: {error}; "
            "give 'module:NAME', where NAME is a Component at the top level of the module"
        ) from error
    if not isinstance(found, Component):
        raise PluginError(f"{component!r} must name a Component, not {found!r}")
    return Located(found, component)


def _find_name(component: Component) -> str | None:
    """A top-level name of this very object, in the module of its factory or of its settings."""
    for owner in (component.factory, component.settings):
        module_name = getattr(owner, "__module__", None)
        # what a child process runs as `__main__` is another script
        if not module_name or module_name == "__main__" or not _can_be_imported(module_name):
            continue
        for attribute, value in vars(sys.modules[module_name]).items():
            if value is component:
                return f"{module_name}:{attribute}"
    return None


def _can_be_imported(module_name: str) -> bool:
    try:
        return find_spec(module_name) is not None
    except (ImportError, ValueError):  # a module that was made by hand has no spec
        return False
