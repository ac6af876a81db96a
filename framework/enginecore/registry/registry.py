"""The registry: every plugin that was found, and the components of those that are active."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pluggy

from enginecore.errors import PluginError
from enginecore.kinds import KINDS
from enginecore.plugin import Component, HookSpecs, KindSpec
from enginecore.registry.component import build_component
from enginecore.registry.component_rules import UnknownKindError, check_components, check_kinds_of
from enginecore.registry.discovery import DiscoveryOptions, check_names, find_candidates
from enginecore.registry.explanation import explain_absence, explain_duplicates, explain_unknown_kind
from enginecore.registry.loading import load_plugins
from enginecore.registry.located import Located, locate
from enginecore.registry.observers import Observers
from enginecore.registry.record import PluginRecord
from enginecore.registry.spelling import closest


class Registry:
    """The plugins that were found, and what the active ones bring. Immutable.

    Made by `discover` or, in a child process, by `from_spec`.

    Attributes:
        plugins: A record of each plugin, active or not.
        observers: The observer hooks of the active ones.
        kinds: The kinds of component by name: the engine's, then those of active plugins.
    """

    def __init__(
        self,
        plugins: Iterable[PluginRecord],
        observers: Observers,
        options: DiscoveryOptions,
        located: Sequence[Located] = (),
    ) -> None:
        self.plugins = tuple(plugins)
        self.observers = observers
        self.kinds: Mapping[str, KindSpec] = MappingProxyType(
            {kind.name: kind for kind in (*KINDS, *(kind for record in self._active for kind in record.kinds))}
        )
        self._options = options
        self._located = tuple(located)

    @classmethod
    def discover(
        cls, allow: Sequence[str] | None = None, block: Sequence[str] = (), reserved: Collection[str] = ()
    ) -> "Registry":
        """Find the plugins that are installed, and import those that may be.

        Names in both lists are entry-point names or distribution names (all plugins of that
        distribution), compared as package indexes do. `block` beats `allow`. What is blocked is not
        imported. A plugin that raises, or breaks a rule of the plugin interface, becomes a failed
        record, and the others load.

        A plugin counts as a whole: all of its components and kinds, or none. Hence a plugin of
        another distribution than enginecore that offers a component of a kind that opens a network
        surface, such as a transport, is blocked as a whole unless `allow` names it; its record
        lists what it would offer. A distribution that wants its other components to work without an
        allow-list puts its transport into an entry point of its own.

        The order in which plugins are found does not matter: a component may be found before its
        kind.

        Args:
            allow: Only these; an empty list: none at all. None: all.
            block: Not these.
            reserved: Names that no settings table of a plugin's kind may have.

        Raises:
            ConfigurationError: a list names what is not installed; says what is.
        """
        options = DiscoveryOptions(None if allow is None else tuple(allow), tuple(block), frozenset(reserved))
        return cls._load(options)

    @classmethod
    def _load(cls, options: DiscoveryOptions) -> "Registry":
        candidates, unreadable = find_candidates()
        check_names("plugins.allow", options.allow or (), candidates)
        check_names("plugins.block", options.block, candidates)
        manager = pluggy.PluginManager("enginecore")
        manager.add_hookspecs(HookSpecs)
        plugins = load_plugins(candidates, manager, options)
        return cls([*unreadable, *plugins], Observers(manager), options)

    def with_components(self, components: Iterable[Component | str]) -> "Registry":
        """A registry with more components, given as objects or as "module:NAME" of a Component.

        They obey the rules that plugins obey: a name that is offered already is an error when it is
        asked for.

        Raises:
            PluginError: a component breaks a rule, or its name cannot be imported; says what would
                be right.
        """
        located = [locate(component) for component in components]
        if not located:
            return self
        given = tuple(item.component for item in located)
        self._check(given)
        record = PluginRecord(
            entry_point="components",
            module="",
            distribution="argument",
            version="",
            status="active",
            components=given,
        )
        return Registry([*self.plugins, record], self.observers, self._options, [*self._located, *located])

    def _check(self, components: Sequence[Component]) -> None:
        check_components(components)
        try:
            check_kinds_of(components, self.kinds)
        except UnknownKindError as error:
            raise PluginError(explain_unknown_kind(error, self._left_out)) from None

    # -- resolution --------------------------------------------------------------------------------

    @property
    def _active(self) -> tuple[PluginRecord, ...]:
        return tuple(record for record in self.plugins if record.status == "active")

    @property
    def _left_out(self) -> tuple[PluginRecord, ...]:
        return tuple(record for record in self.plugins if record.status != "active")

    @property
    def failed(self) -> tuple[PluginRecord, ...]:
        """The plugins that are broken."""
        return tuple(record for record in self.plugins if record.status == "failed")

    @property
    def conflicts(self) -> Mapping[tuple[str, str], tuple[PluginRecord, ...]]:
        """Components that several active plugins offer, and which plugins. None can be used."""
        return {key: tuple(offers) for key, offers in self._offers().items() if len(offers) > 1}

    def kind(self, name: str) -> KindSpec:
        """The row of a kind.

        Raises:
            PluginError: there is no such kind; names the closest ones, and the plugins that may
                have brought it.
        """
        if name not in self.kinds:
            hint = closest(name, self.kinds) or f"; the kinds are {', '.join(self.kinds)}"
            error = UnknownKindError(name, f"there is no kind of component {name!r}{hint}")
            raise PluginError(explain_unknown_kind(error, self._left_out))
        return self.kinds[name]

    def components(self, kind: str) -> tuple[Component, ...]:
        """All active components of a kind, in order of discovery; one name may be there twice."""
        return tuple(component for record in self._active for component in record.components if component.kind == kind)

    def get(self, kind: str, name: str) -> Component:
        """The component that `<kind>.use = "<name>"` asks for.

        Raises:
            PluginError: no active plugin offers it: names what is close, and which plugins are left
                out and why. Or several do: names them.
        """
        offers = self._offers().get((kind, name), [])
        if not offers:
            self.kind(kind)
            raise PluginError(explain_absence(kind, name, self.plugins))
        if len(offers) > 1:
            raise PluginError(explain_duplicates(kind, name, offers))
        return next(c for c in offers[0].components if (c.kind, c.name) == (kind, name))

    def _offers(self) -> dict[tuple[str, str], list[PluginRecord]]:
        offers: dict[tuple[str, str], list[PluginRecord]] = {}
        for record in self._active:
            for component in record.components:
                offers.setdefault((component.kind, component.name), []).append(record)
        return offers

    # -- building ----------------------------------------------------------------------------------

    def build(self, component: Component, settings: Any, context: Any) -> Any:
        """Call a component's factory, and check the result against the interface of its kind.

        Raises:
            EngineCoreError: raised by the factory on purpose.
            PluginError: the factory raises something else, or its result does not fill the kind's
                interface.
        """
        return build_component(component, settings, context, self.kinds[component.kind].interface)

    # -- other processes ---------------------------------------------------------------------------

    def spec(self, kinds: Collection[str] | None = None) -> dict[str, Any]:
        """Plain JSON-able data from which `from_spec` makes this registry in another process.

        Args:
            kinds: Of components given as objects, only those of these kinds. None: all.

        Raises:
            PluginError: a component that was given as an object cannot be imported there; says what
                to do.
        """
        wanted = [item for item in self._located if kinds is None or item.component.kind in kinds]
        return {
            **self._options.to_plain(),
            "components": [item.importable_name() for item in wanted],
            "plugins": self._identity(),
        }

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "Registry":
        """Make the registry that `spec` describes again, wherever this is.

        Raises:
            PluginError: not the same plugins are here; names the differences.
        """
        registry = cls._load(DiscoveryOptions.from_plain(spec)).with_components(spec["components"])
        there = {tuple(item) for item in spec["plugins"]}
        here = {tuple(item) for item in registry._identity()}
        if there != here:
            lines = [f"  only in the parent: {' '.join(item)}" for item in sorted(there - here)]
            lines += [f"  only here: {' '.join(item)}" for item in sorted(here - there)]
            raise PluginError("this process does not have the plugins of its parent\n" + "\n".join(lines))
        return registry

    def _identity(self) -> list[list[str]]:
        """The plugins that were found. Components given as objects go by their own names."""
        found = [record for record in self.plugins if record.distribution != "argument"]
        return [[record.entry_point, record.distribution, record.version, record.status] for record in found]
