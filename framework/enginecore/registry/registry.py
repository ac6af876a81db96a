"""The registry: every plugin that was found, and the components of those that are active."""

import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pluggy

from enginecore.errors import PluginError
from enginecore.kinds import KINDS
from enginecore.plugin import Component, HookSpecs, KindSpec
from enginecore.registry.component import build_component
from enginecore.registry.discovery import Candidate, check_names, find_candidates, refusal
from enginecore.registry.explanation import explain_absence, explain_duplicates
from enginecore.registry.located import Located, locate
from enginecore.registry.observers import Observers
from enginecore.registry.record import PluginRecord
from enginecore.registry.validation import check_hooks, checked_components, offered_components


class Registry:
    """What was found and what came of it. Never changes once made; `with_components` makes another one.

    Made by `discover` or, in a child process, by `from_spec`.
    """

    def __init__(
        self,
        plugins: Iterable[PluginRecord],
        observers: Observers,
        *,
        allow: Sequence[str] | None,
        block: Sequence[str],
        located: Sequence[Located] = (),
    ) -> None:
        self.plugins = tuple(plugins)
        self.observers = observers
        self.kinds: Mapping[str, KindSpec] = MappingProxyType({kind.name: kind for kind in KINDS})
        self._allow = None if allow is None else tuple(allow)
        self._block = tuple(block)
        self._located = tuple(located)

    @classmethod
    def discover(cls, allow: Sequence[str] | None = None, block: Sequence[str] = ()) -> "Registry":
        """Find the plugins that are installed, and import those that may be.

        Names in both lists are entry-point names or distribution names (all plugins of that distribution), compared
        as package indexes do. `block` beats `allow`. What is blocked is not imported. A plugin that raises, or breaks
        a rule of the plugin interface, becomes a failed record; it stops nobody else.

        A plugin counts as a whole: all of its components or none. Hence a plugin of another distribution than
        enginecore that offers a transport, which opens a network surface, is blocked as a whole unless `allow` names
        it; its record lists what it would offer. A distribution that wants its other components to work without an
        allow-list puts its transport into an entry point of its own.

        Args:
            allow: Only these; an empty list: none at all. None: all.
            block: Not these.

        Raises:
            ConfigurationError: a list names what is not installed; says what is.
        """
        candidates, plugins = find_candidates()
        check_names("plugins.allow", allow or (), candidates)
        check_names("plugins.block", block, candidates)
        manager = pluggy.PluginManager("enginecore")
        manager.add_hookspecs(HookSpecs)
        for candidate in candidates:
            record = refusal(candidate, allow, block) or _load(candidate, manager, allow)
            plugins.append(record)
        return cls(plugins, Observers(manager), allow=allow, block=block)

    def with_components(self, components: Iterable[Component | str]) -> "Registry":
        """This registry and some components more, given as objects or as "module:NAME" of a Component.

        They obey the rules that plugins obey: a name that is offered already is an error for whoever asks for it.

        Raises:
            PluginError: a component breaks a rule, or its name cannot be imported; says what would be right.
        """
        located = [locate(component) for component in components]
        if not located:
            return self
        record = PluginRecord(
            entry_point="components",
            module="",
            distribution="argument",
            version="",
            status="active",
            components=checked_components([item.component for item in located], self.kinds),
        )
        return Registry(
            [*self.plugins, record],
            self.observers,
            allow=self._allow,
            block=self._block,
            located=[*self._located, *located],
        )

    # -- resolution --------------------------------------------------------------------------------

    @property
    def failed(self) -> tuple[PluginRecord, ...]:
        """The plugins that are broken."""
        return tuple(record for record in self.plugins if record.status == "failed")

    @property
    def conflicts(self) -> Mapping[tuple[str, str], tuple[PluginRecord, ...]]:
        """Components that several active plugins offer, and which: nobody can have them."""
        return {key: tuple(offers) for key, offers in self._offers().items() if len(offers) > 1}

    def components(self, kind: str) -> tuple[Component, ...]:
        """All active components of a kind, in order of discovery; one name may be there twice."""
        return tuple(
            c for record in self.plugins if record.status == "active" for c in record.components if c.kind == kind
        )

    def get(self, kind: str, name: str) -> Component:
        """The component that `<kind>.use = "<name>"` asks for.

        Raises:
            PluginError: nobody offers it: names what is close, and which plugins are left out and why. Or several
                do: names them.
        """
        offers = self._offers().get((kind, name), [])
        if not offers:
            raise PluginError(explain_absence(kind, name, self.plugins))
        if len(offers) > 1:
            raise PluginError(explain_duplicates(kind, name, offers))
        return next(c for c in offers[0].components if (c.kind, c.name) == (kind, name))

    def _offers(self) -> dict[tuple[str, str], list[PluginRecord]]:
        offers: dict[tuple[str, str], list[PluginRecord]] = {}
        for record in self.plugins:
            for component in record.components if record.status == "active" else ():
                offers.setdefault((component.kind, component.name), []).append(record)
        return offers

    # -- building ----------------------------------------------------------------------------------

    def build(self, component: Component, settings: Any, context: Any) -> Any:
        """Call a component's factory, and check that the result is what its kind says.

        Raises:
            EngineCoreError: raised by the factory on purpose.
            PluginError: the factory raises something else, or its result does not fill the kind's interface.
        """
        return build_component(component, settings, context, self.kinds[component.kind].interface)

    # -- other processes ---------------------------------------------------------------------------

    def spec(self) -> dict[str, Any]:
        """What `from_spec` needs to make this registry again in another process, as plain JSON-able data.

        Raises:
            PluginError: a component that was given as an object cannot be imported there; says what to do.
        """
        return {
            "allow": None if self._allow is None else list(self._allow),
            "block": list(self._block),
            "components": [item.importable_name() for item in self._located],
            "plugins": self._identity(),
        }

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "Registry":
        """Make the registry that `spec` describes again, wherever this is.

        Raises:
            PluginError: not the same plugins are here; names the differences.
        """
        registry = cls.discover(spec["allow"], spec["block"]).with_components(spec["components"])
        there = {tuple(item) for item in spec["plugins"]}
        here = {tuple(item) for item in registry._identity()}
        if there != here:
            lines = [f"  only in the parent: {' '.join(item)}" for item in sorted(there - here)]
            lines += [f"  only here: {' '.join(item)}" for item in sorted(here - there)]
            raise PluginError("this process does not have the plugins of its parent\n" + "\n".join(lines))
        return registry

    def _identity(self) -> list[list[str]]:
        return [[r.entry_point, r.distribution, r.version, r.status] for r in self.plugins]


def _load(candidate: Candidate, manager: pluggy.PluginManager, allow: Sequence[str] | None) -> PluginRecord:
    """Import and register one plugin, or undo it and say why it is left out."""
    plugin: Any = None
    try:
        plugin = candidate.entry_point.load()
        check_hooks(plugin)
        if manager.is_registered(plugin):
            raise PluginError(f"module {plugin.__name__} is registered already, as {manager.get_name(plugin)}")
        manager.register(plugin, candidate.key)
        components = offered_components(manager, plugin, {kind.name: kind for kind in KINDS})
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # plugins also raise SystemExit, and what they raise may derive from nothing else
        _forget(candidate, manager)
        return _failed(candidate, error)
    record = replace(candidate.record("active"), components=components)
    transports = [component.name for component in components if component.kind == "transport"]
    if not transports or candidate.is_bundled or candidate.matches(allow or ()):
        return record
    _forget(candidate, manager)
    reason = f"it opens a network surface (transport {', '.join(transports)}), so plugins.allow must name it"
    return replace(record, status="blocked", reason=reason)


def _forget(candidate: Candidate, manager: pluggy.PluginManager) -> None:
    if manager.has_plugin(candidate.key):
        manager.unregister(name=candidate.key)


def _failed(candidate: Candidate, error: BaseException) -> PluginRecord:
    if isinstance(error, PluginError | pluggy.PluginValidationError):
        return candidate.record("failed", " ".join(str(error).split()))
    reason = traceback.format_exception_only(error)[-1].strip()
    return candidate.record("failed", reason, "".join(traceback.format_exception(error)))
