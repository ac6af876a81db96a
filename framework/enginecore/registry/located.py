"""Components given as objects, and the names by which another process imports them."""

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
            raise PluginError(
                f"{self.component.kind} {self.component.name!r} was given as an object, and other processes cannot "
                "import it: assign the Component to a name at the top level of a module that can be imported, which "
                "the script that is run cannot"
            )
        return name


def locate(component: Component | str) -> Located:
    """Look up a component that is given as "module:NAME", or take the object.

    Raises:
        PluginError: neither a Component nor the name of one.
    """
    if isinstance(component, Component):
        return Located(component)
    if not isinstance(component, str):
        raise PluginError(f"components must be Components or texts 'module:NAME'; one of them is {component!r}")
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
    """A top-level name of this very object, in whichever importable module has one."""
    for module_name, module in list(sys.modules.items()):
        for attribute, value in list(vars(module).items()):
            if value is component and _can_be_imported(module_name):
                return f"{module_name}:{attribute}"
    return None


def _can_be_imported(module_name: str) -> bool:
    if module_name in ("__main__", "__mp_main__"):  # another script in every process
        return False
    try:
        return find_spec(module_name) is not None
    except (ImportError, ValueError):  # a module that was made by hand has no spec
        return False
