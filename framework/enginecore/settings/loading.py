"""Loading of settings: first `plugins.*`, then all, with a typed table per loaded component."""

import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from enginecore.errors import ConfigurationError
from enginecore.plugin import Component
from enginecore.registry import Registry
from enginecore.registry.spelling import closest
from enginecore.settings.model import RESERVED_TABLES, ComponentTable, EngineSettings, PluginSettings, settings_model
from enginecore.settings.problems import configuration_error, explain_unknown, problems_of, problems_of_choice
from enginecore.settings.sentences import Problem
from enginecore.settings.sources import (
    NOTHING,
    Layer,
    Layers,
    Values,
    arguments_layer,
    environment_layer,
    file_layer,
    model_of,
    overlay,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, the registry that they were read with, and where each value came from.

    Attributes:
        settings: All settings.
        registry: The plugins that `settings.plugins` lets in, and the components given as objects.
        sources: By dotted key: "argument", "environment ENGINECORE_X", "file PATH", "default", or
            what the front end calls a default of its own.
    """

    settings: EngineSettings
    registry: Registry
    sources: Mapping[str, str]

    def build(self, kind: str, context: Any) -> Any:
        """Build the component that the settings choose for a kind.

        Raises:
            EngineCoreError: raised by its factory on purpose.
            PluginError: there is no such component, or it cannot be built, or is not what its kind
                says.
        """
        choice = self.settings.component(kind)
        return self.registry.build(self.registry.get(kind, choice.name), choice.settings, context)

    def to_plain(self, kinds: Collection[str] | None = None) -> dict[str, Any]:
        """Plain JSON-able data, from which `restore_settings` makes this again in another process.

        Args:
            kinds: Only the tables and the components of these kinds; all else is as by default
                there. None: all.

        Raises:
            PluginError: a component given as an object cannot be imported there.
            ConfigurationError: a plugin's settings hold a value that plain data cannot.
        """
        keys = None if kinds is None else {self.registry.kind(kind).table or "" for kind in kinds}
        plain = self.settings.model_dump(mode="json", include=keys)
        restored = settings_model(self.registry).model_validate(plain)
        if restored.model_dump(include=keys) != self.settings.model_dump(include=keys):
            raise ConfigurationError(
                "the settings of a component do not survive as plain data, so they cannot be sent to another process; "
                "its settings model must use types that pydantic can write as JSON and read again"
            )
        return {"settings": plain, "registry": self.registry.spec(kinds), "sources": dict(self.sources)}


def restore_settings(plain: Mapping[str, Any]) -> Loaded:
    """Restore settings from `Loaded.to_plain`. Reads neither environment nor files.

    Raises:
        PluginError: this process does not have the same plugins.
    """
    registry = Registry.from_spec(plain["registry"])
    settings = settings_model(registry).model_validate(plain["settings"])
    return Loaded(settings, registry, plain["sources"])


def load_settings(
    arguments: Mapping[str, Any] | None = None,
    *,
    config_file: str | Path | None = None,
    components: Iterable[Component | str] = (),
    environ: Mapping[str, str] | None = None,
    defaults: Layer = NOTHING,
) -> Loaded:
    """Read the settings: `arguments` over the environment over the file over defaults.

    Args:
        arguments: Nested dicts, or dotted keys such as "scheduler.use", which go on top. A value of
            None is a value.
        config_file: TOML, YAML or JSON.
        components: More components than those of plugins, as for `Registry.with_components`.
        environ: Instead of `os.environ`.
        defaults: Where a front end differs from the defaults of all.

    Raises:
        ConfigurationError: what is wrong, all of it: each with its key, value, source, and what
            would be right.
        PluginError: one of `components` breaks a rule.
    """
    sources = _Sources.read(arguments, config_file, environ, defaults)
    registry = _discover(sources).with_components(components)
    for record in registry.failed:
        logger.warning("%s is left out: %s (`enginecore plugins` says more)", record.origin, record.reason)
    model = settings_model(registry)
    layers = sources.layers(model)
    settings = _read_all(layers, model, registry)
    origins = {".".join(path): layers.origin(path) for path in _leaves(settings.model_dump(), ())}
    return Loaded(settings, registry, origins)


def load_registry(
    arguments: Mapping[str, Any] | None = None,
    *,
    config_file: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Registry:
    """The plugins that the same settings let in. Reads no more of them than `plugins.*`, so the
    rest may be wrong.

    Raises:
        ConfigurationError: as `load_settings`, for `plugins.*` and for keys that do not exist at
            the top level.
    """
    sources = _Sources.read(arguments, config_file, environ)
    registry = _discover(sources)
    _check_top_level(sources, registry)
    return registry


def _check_top_level(sources: "_Sources", registry: Registry) -> None:
    model = settings_model(registry)
    layers = sources.layers(model)
    unknown = [(str(key),) for key in layers.values if key not in model.model_fields]
    if unknown:
        problems = [Problem(path, explain_unknown(path, layers.values, model, registry)) for path in unknown]
        raise configuration_error(problems, layers)


def _discover(sources: "_Sources") -> Registry:
    plugins = _read_plugins(sources.layers(EngineSettings))
    return Registry.discover(plugins.allow, plugins.block, RESERVED_TABLES)


@dataclass(frozen=True, slots=True)
class _Sources:
    """Sources that both passes read. Texts wait for the types, which say what they mean."""

    arguments: Mapping[str, Any]
    environ: Mapping[str, str]
    file: Layer
    defaults: Layer

    @classmethod
    def read(
        cls,
        arguments: Mapping[str, Any] | None,
        config_file: str | Path | None,
        environ: Mapping[str, str] | None,
        defaults: Layer = NOTHING,
    ) -> "_Sources":
        return cls(
            arguments or {},
            dict(os.environ if environ is None else environ),
            NOTHING if config_file is None else file_layer(config_file),
            defaults,
        )

    def layers(self, model: type[EngineSettings]) -> Layers:
        arguments, environment = arguments_layer(self.arguments, model), environment_layer(self.environ, model)
        return Layers((arguments, environment, self.file, self.defaults))


class _FirstPass(BaseModel):
    plugins: PluginSettings = PluginSettings()


def _read_plugins(layers: Layers) -> PluginSettings:
    """First pass. Nothing is imported on behalf of settings that may have meant `plugins`.

    Other keys wait for the second pass: plugins bring tables of their own.
    """
    values = layers.values
    unknown = [str(key) for key in values if key not in EngineSettings.model_fields]
    meant = [key for key in unknown if key in PluginSettings.model_fields or closest(key, ["plugins"])]
    problems = [Problem((key,), explain_unknown((key,), values, EngineSettings)) for key in meant]
    try:
        first = _FirstPass.model_validate(values)
    except ValidationError as error:
        raise configuration_error([*problems, *problems_of(error, values, EngineSettings)], layers) from None
    if problems:
        raise configuration_error(problems, layers)
    return first.plugins


def _read_all(layers: Layers, model: type[EngineSettings], registry: Registry) -> EngineSettings:
    """Second pass, with the types of all components."""
    values = _with_chosen_tables(layers.values, model)
    problems = problems_of_choice(registry, values)
    try:
        settings = model.model_validate(values)
    except ValidationError as error:
        raise configuration_error([*problems, *problems_of(error, values, model, registry)], layers) from None
    if problems:
        raise configuration_error(problems, layers)
    return settings


def _with_chosen_tables(values: Values, model: type[EngineSettings]) -> Values:
    """A component that is chosen has a table, if need be an empty one: so its required settings are
    missed.
    """
    for table, field in model.model_fields.items():
        kind_table = model_of(field.annotation)
        if kind_table is None or not issubclass(kind_table, ComponentTable):
            continue
        fields = kind_table.model_fields
        given = values.get(table, {})
        name = given.get("use", fields["use"].default) if isinstance(given, Mapping) else None
        if isinstance(name, str) and name in fields and name != "use":
            values = overlay({table: {name: {}}}, values)
    return values


def _leaves(values: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key)
