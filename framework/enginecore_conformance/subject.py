"""The component under check, and settings that choose it."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from enginecore.errors import ConfigurationError, PluginError
from enginecore.plugin import Component, KindSpec
from enginecore.registry import Registry
from enginecore.registry.located import Located, locate
from enginecore.registry.spelling import closest
from enginecore.settings import Loaded, load_registry, load_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the checks of a component.

    Attributes:
        settings: Settings of the component.
        engine: Further settings of the engine that it is checked in, as in `load_settings`: what it
            works with.
        allow: As `plugins.allow`.
        patience: Seconds to wait for what a right component does in milliseconds.
        time_limit: Seconds for one check, after which it has failed, wherever it hangs.
    """

    settings: Mapping[str, Any] | None = None
    engine: Mapping[str, Any] | None = None
    allow: Sequence[str] | None = None
    patience: float = 10.0
    time_limit: float = 100.0

    @property
    def for_run(self) -> Mapping[str, Any]:
        """Options that a single run depends on, as far as given."""
        given = {"settings": self.settings, "engine": self.engine, "allow": self.allow}
        return {name: value for name, value in given.items() if value}


@dataclass(frozen=True, slots=True)
class Subject:
    """A component under check.

    Attributes:
        component: The component.
        loaded: Settings that choose it.
        reference: Reference that finds it: "kind:name", or "module:NAME" of one that is not
            installed.
        options: Options of the checks.
        clearing: Resources that checks share, and their release. Checks can be run again after
            that.
    """

    component: Component
    loaded: Loaded
    reference: str
    options: Options
    _arguments: Mapping[str, Any]
    _components: tuple[Component, ...]
    clearing: ExitStack = field(default_factory=ExitStack, compare=False, repr=False)

    @property
    def kind(self) -> KindSpec:
        """The kind of the component."""
        return self.loaded.registry.kinds[self.component.kind]

    @property
    def is_installed(self) -> bool:
        """Whether a plugin offers it, so that other processes find it by its name."""
        return not self._components

    @property
    def module(self) -> str | None:
        """The module that an engine imports to find it; None: it was given as an object, from no
        such place.
        """
        kind, name = self.component.kind, self.component.name
        for record in self.loaded.registry.plugins:
            if self.is_installed and any((c.kind, c.name) == (kind, name) for c in record.components):
                return record.module
        prefix = self.reference.partition(":")[0]
        return None if prefix == kind else prefix

    @property
    def patience(self) -> float:
        """Seconds to wait for what should be there at once."""
        return self.options.patience

    @classmethod
    def find(cls, component: Component | str, options: Options) -> "Subject":
        """Find a component: an object, "kind:name" of an installed one, or "module:NAME" of a
        Component.

        Raises:
            ConfigurationError: the settings are wrong.
            PluginError: there is no such component.
        """
        kind, name, given = _resolve(component, registry_with(options.allow))
        arguments = {
            "model": "oracle",
            "executor.use": "oracle",
            **(options.engine or {}),
            f"{kind.table}.use": name,
            **({f"{kind.table}.{name}": dict(options.settings)} if options.settings else {}),
            **_allowed(options.allow),
        }
        components = () if given is None else (given,)
        loaded = load_settings(arguments, components=components, environ={})
        reference = component if isinstance(component, str) else _reference(component)
        return cls(loaded.registry.get(kind.name, name), loaded, reference, options, arguments, components)

    def load(self, more: Mapping[str, Any], components: Sequence[Component] = ()) -> Loaded:
        """As `loaded`, with some settings and some components more."""
        arguments = {**self._arguments, **more}
        return load_settings(arguments, components=(*self._components, *components), environ={})


def registry_with(allow: Sequence[str] | None) -> Registry:
    """The plugins that `plugins.allow` lets in, whatever the environment says."""
    return load_registry(_allowed(allow), environ={})


def kind_of(component: Component | str, registry: Registry) -> KindSpec:
    """The kind of an object, of "kind:name", or of the Component at "module:NAME".

    Raises:
        ConfigurationError: the text is neither of these.
        PluginError: there is no such component, or its kind is unknown.
    """
    given = _located(component, registry) if isinstance(component, str) else component
    name = given.kind if given is not None else str(component).partition(":")[0]
    if name not in registry.kinds:
        hint = closest(str(name), registry.kinds) or f"; the kinds are {', '.join(registry.kinds)}"
        raise PluginError(f"component {component!r} has the unknown kind {name!r}{hint}")
    return registry.kinds[name]


def _allowed(allow: Sequence[str] | None) -> Mapping[str, Any]:
    return {} if allow is None else {"plugins.allow": list(allow)}


def _reference(component: Component) -> str:
    try:
        return Located(component).importable_name()
    except PluginError:
        return f"{component.kind}:{component.name}"


def _located(reference: str, registry: Registry) -> Component | None:
    """The object if the reference is "module:NAME"; None if it is "kind:name"."""
    prefix, _, name = reference.partition(":")
    if not name:
        raise ConfigurationError(
            f"{reference!r} names no component: write KIND:NAME, such as scheduler:fcfs, or MODULE:NAME of a Component"
        )
    if prefix in registry.kinds:
        return None
    if hint := closest(prefix, registry.kinds):
        raise ConfigurationError(f"{reference!r} begins with {prefix!r}, which is no kind of component{hint}")
    return locate(reference).component


def _resolve(component: Component | str, registry: Registry) -> tuple[KindSpec, str, Component | None]:
    """Kind and name, and the object if it is not installed under that name."""
    kind = kind_of(component, registry)
    given = _located(component, registry) if isinstance(component, str) else component
    if given is None:
        return kind, str(component).partition(":")[2], None
    installed = [each for each in registry.components(kind.name) if each.name == given.name]
    if any(each is given for each in installed):
        return kind, given.name, None
    if installed:  # another one of that name is installed, perhaps an earlier state of it: the object is meant
        given = replace(given, name=f"{given.name}_given")
    return kind, given.name, given
