"""The transport that is checked, and settings that choose it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from enginecore.plugin import Component
from enginecore.settings import Loaded, load_settings


@dataclass(frozen=True, slots=True)
class Subject:
    """A transport under check.

    Attributes:
        component: It.
        loaded: Settings that choose it.
        patience: Seconds to wait for what should be there at once.
    """

    component: Component
    loaded: Loaded
    patience: float
    _arguments: Mapping[str, Any]
    _components: tuple[Component, ...]

    @classmethod
    def find(
        cls,
        component: Component | str,
        settings: Mapping[str, Any] | None,
        allow: Sequence[str] | None,
        patience: float,
    ) -> "Subject":
        """By object or by name.

        Raises:
            ConfigurationError: the settings are wrong.
            PluginError: there is no such transport.
        """
        name = component if isinstance(component, str) else component.name
        arguments = {
            "model": "oracle",
            "executor.use": "oracle",
            "transport.use": name,
            **({f"transport.{name}": dict(settings)} if settings else {}),
            **({} if allow is None else {"plugins.allow": list(allow)}),
        }
        given = () if isinstance(component, str) else (component,)
        loaded = load_settings(arguments, components=given, environ={})
        return cls(loaded.registry.get("transport", name), loaded, patience, arguments, given)

    def load(self, more: Mapping[str, Any], components: Sequence[Component]) -> Loaded:
        """As `loaded`, with some settings and some components more."""
        arguments = {**self._arguments, **more}
        return load_settings(arguments, components=(*self._components, *components), environ={})
