"""Loading of plugins: imports, checks of each one, and checks of all against each other."""

import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pluggy

from enginecore.errors import PluginError
from enginecore.kinds import KINDS
from enginecore.plugin import Command, Component, KindSpec
from enginecore.registry.command_rules import check_commands
from enginecore.registry.component_rules import UnknownKindError, check_components, check_kinds_of
from enginecore.registry.discovery import Candidate, DiscoveryOptions, refusal
from enginecore.registry.explanation import explain_unknown_kind
from enginecore.registry.hooks import call_offer, check_hooks
from enginecore.registry.kind_rules import check_kinds, check_part_of, find_rivals
from enginecore.registry.record import PluginRecord


def load_plugins(
    candidates: Sequence[Candidate], manager: pluggy.PluginManager, options: DiscoveryOptions
) -> list[PluginRecord]:
    """Import the plugins that may be imported, and register them with `manager`.

    A plugin that raises or breaks a rule is a failed record, and nothing of it stays registered.
    A plugin with a component whose kind a failed plugin would have brought fails too.

    Returns:
        One record per candidate.
    """
    loading = _Loading(manager, options)
    for candidate in candidates:
        loading.load(candidate)
    loading.settle()
    return [loading.record_of(candidate) for candidate in candidates]


@dataclass(frozen=True, slots=True)
class _Imported:
    """A plugin that was imported and is right by itself."""

    candidate: Candidate
    kinds: tuple[KindSpec, ...]
    components: tuple[Component, ...]
    commands: tuple[Command, ...]

    @property
    def origin(self) -> str:
        return self.candidate.record("active").origin

    def active(self) -> PluginRecord:
        """The record of one that stays."""
        offered: dict[str, Any] = {"kinds": self.kinds, "components": self.components, "commands": self.commands}
        return self.candidate.record("active", **offered)

    def failed(self, reason: str) -> PluginRecord:
        """The record of one that must leave."""
        return self.candidate.record("failed", reason, kinds=self.kinds, commands=self.commands)

    def blocked(self, reason: str) -> PluginRecord:
        """The record of one that may not stay."""
        return replace(self.active(), status="blocked", reason=reason)


class _Loading:
    """One discovery: plugins that are in so far, and records of those that are out."""

    def __init__(self, manager: pluggy.PluginManager, options: DiscoveryOptions) -> None:
        self._manager = manager
        self._options = options
        self._plugins: dict[str, _Imported] = {}
        self._left_out: dict[str, PluginRecord] = {}

    def load(self, candidate: Candidate) -> None:
        """Import a plugin unless it must not be, and check it by itself."""
        if (refused := refusal(candidate, self._options)) is not None:
            self._left_out[candidate.key] = refused
            return
        try:
            self._plugins[candidate.key] = self._import(candidate)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # plugins also raise SystemExit, and what derives from nothing else
            self._leave_out(candidate, _failure(candidate, error))

    def settle(self) -> None:
        """Check the plugins against each other until all that are in can stay."""
        while leaving := dict(self._clashing()) or dict(self._unfit()):
            for key, record in leaving.items():
                self._leave_out(self._plugins.pop(key).candidate, record)

    def record_of(self, candidate: Candidate) -> PluginRecord:
        """The record of a plugin, once all are settled."""
        if (left_out := self._left_out.get(candidate.key)) is not None:
            return left_out
        return self._plugins[candidate.key].active()

    @property
    def _kinds(self) -> Mapping[str, KindSpec]:
        rows = [*KINDS, *(kind for plugin in self._plugins.values() for kind in plugin.kinds)]
        return {kind.name: kind for kind in rows}

    def _import(self, candidate: Candidate) -> _Imported:
        plugin: Any = candidate.entry_point.load()
        check_hooks(plugin)
        if self._manager.is_registered(plugin):
            raise PluginError(f"module {plugin.__name__} is registered already, as {self._manager.get_name(plugin)}")
        self._manager.register(plugin, candidate.key)
        kinds = call_offer(self._manager, plugin, "enginecore_kinds", KindSpec)
        check_kinds(kinds, self._options.reserved)
        components = call_offer(self._manager, plugin, "enginecore_components", Component)
        check_components(components)
        commands = call_offer(self._manager, plugin, "enginecore_commands", Command)
        check_commands(commands)
        return _Imported(candidate, kinds, components, commands)

    def _leave_out(self, candidate: Candidate, record: PluginRecord) -> None:
        if self._manager.has_plugin(candidate.key):
            self._manager.unregister(name=candidate.key)
        self._left_out[candidate.key] = record

    # -- reasons to leave ----------------------------------------------------------------------------

    def _clashing(self) -> Iterator[tuple[str, PluginRecord]]:
        """Plugins with a kind that another one declares too. Bundled plugins keep theirs."""
        for key, plugin in self._plugins.items():
            if plugin.candidate.is_bundled:
                continue
            if reason := self._clash(plugin):
                yield key, plugin.failed(reason)

    def _clash(self, plugin: _Imported) -> str:
        others = [other for other in self._plugins.values() if other is not plugin]
        for kind in plugin.kinds:
            claims = {other.origin: claim for other in others if (claim := find_rivals(kind, other.kinds))}
            if claims:
                claim = next(iter(claims.values()))
                return f"{claim} by {' and '.join(claims)} as well: leave one out with plugins.block, or uninstall it"
        return ""

    def _unfit(self) -> Iterator[tuple[str, PluginRecord]]:
        """Plugins that cannot stay beside the kinds that there are."""
        kinds = self._kinds
        for key, plugin in self._plugins.items():
            try:
                for kind in plugin.kinds:
                    check_part_of(kind, kinds)
                check_kinds_of(plugin.components, kinds)
            except UnknownKindError as error:
                reason = explain_unknown_kind(error, list(self._left_out.values()))
                yield key, plugin.failed(reason)
            except PluginError as error:
                yield key, plugin.failed(str(error))
            else:
                if reason := self._network_refusal(plugin, kinds):
                    yield key, plugin.blocked(reason)

    def _network_refusal(self, plugin: _Imported, kinds: Mapping[str, KindSpec]) -> str:
        """Why a plugin that opens a network surface may not; empty if it may, or opens none."""
        opening = [component for component in plugin.components if kinds[component.kind].opens_network]
        candidate = plugin.candidate
        if not opening or candidate.is_bundled or candidate.matches(self._options.allow or ()):
            return ""
        named = ", ".join(f"{component.kind} {component.name}" for component in opening)
        return f"it opens a network surface ({named}), so plugins.allow must name it"


def _failure(candidate: Candidate, error: BaseException) -> PluginRecord:
    if isinstance(error, PluginError | pluggy.PluginValidationError):
        return candidate.record("failed", " ".join(str(error).split()))
    reason = traceback.format_exception_only(error)[-1].strip()
    return candidate.record("failed", reason, traceback="".join(traceback.format_exception(error)))
