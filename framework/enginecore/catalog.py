"""The catalog of active components, for components that are made of others, in any process."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from enginecore.errors import ConfigurationError
from enginecore.plugin import Catalog, Component, EmptyCatalog
from enginecore.settings import Loaded, restore_settings

__all__ = ["LoadedCatalog", "restore_catalog"]


class LoadedCatalog:
    """The `Catalog` of one engine: the components of its registry, with its settings.

    Args:
        loaded: Settings and registry of the engine.
    """

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded

    def components(self, kind: str) -> tuple[Component, ...]:
        return self._loaded.registry.components(kind)

    def chosen(self, kind: str) -> str | None:
        return self._loaded.settings.component(kind).table.use

    def get(self, kind: str, name: str) -> Component:
        return self._loaded.registry.get(kind, name)

    def build(self, kind: str, name: str, context: Any, settings: BaseModel | None = None) -> Any:
        component = self.get(kind, name)
        own = self._settings_of(component) if settings is None else settings
        return self._loaded.registry.build(component, own, context)

    def to_plain(self, *kinds: str) -> dict[str, Any]:
        return self._loaded.to_plain(kinds)

    def _settings_of(self, component: Component) -> Any:
        if self._loaded.registry.kind(component.kind).table is not None:
            return self._loaded.settings.component(component.kind).settings_of(component.name)
        if any(field.is_required() for field in component.settings.model_fields.values()):
            raise ConfigurationError(f"{component.kind} {component.name!r} requires settings: give them to `build`")
        return component.settings()


def restore_catalog(plain: Mapping[str, Any]) -> Catalog:
    """Make the catalog on which `Catalog.to_plain` was called again, in this process.

    Reads neither environment nor files.

    Raises:
        PluginError: this process does not have the same plugins; names the differences.
    """
    return LoadedCatalog(restore_settings(plain)) if plain else EmptyCatalog()
