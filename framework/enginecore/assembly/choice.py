"""Which components run."""

from collections.abc import Mapping

from enginecore.assembly.limits import Limits
from enginecore.errors import ConfigurationError
from enginecore.kinds import EVICTION, KINDS
from enginecore.plugin import Component, KindSpec
from enginecore.settings import Loaded


def choose_components(loaded: Loaded) -> dict[str, Component]:
    """The component that runs for each kind of the engine, and for each part that one of them uses.

    Raises:
        ConfigurationError: the settings choose a part that no component would use.
        PluginError: a component cannot be had.
    """
    chosen = {kind.name: _chosen(kind, loaded) for kind in KINDS if kind.part_of is None}
    for kind in loaded.registry.kinds.values():
        owner = chosen.get(kind.part_of or "")
        if owner is None:
            continue
        if kind.name not in owner.capabilities:
            reason = f"{owner.kind} {owner.name!r} decides that itself"
            _check_default(kind, _name(kind, loaded), reason, f"choose another {owner.kind}")
        elif _name(kind, loaded) is not None:
            chosen[kind.name] = _chosen(kind, loaded)
    return chosen


def without_idle(components: Mapping[str, Component], limits: Limits) -> Mapping[str, Component]:
    """The components that have something to do under these limits: without prefix caching nothing is evicted.

    Raises:
        ConfigurationError: the settings choose one that has not.
    """
    if limits.enable_prefix_caching or EVICTION.name not in components:
        return components
    cure = "set enable_prefix_caching = true (a model that is not causal cannot have it)"
    _check_default(EVICTION, components[EVICTION.name].name, "prefix caching is off", cure)
    return {kind: component for kind, component in components.items() if kind != EVICTION.name}


def _chosen(kind: KindSpec, loaded: Loaded) -> Component:
    return loaded.registry.get(kind.name, loaded.settings.component(kind.name).name)


def _name(kind: KindSpec, loaded: Loaded) -> str | None:
    return loaded.settings.component(kind.name).table.use


def _check_default(kind: KindSpec, name: str | None, reason: str, cure: str) -> None:
    """Refuse the choice of a part that would do nothing; the default is no choice."""
    if name == kind.default:
        return
    default = "unset" if kind.default is None else repr(kind.default)
    raise ConfigurationError(
        f"{kind.table}.use = {name!r} has no effect, since {reason}: leave it out (the default is {default}), or {cure}"
    )
