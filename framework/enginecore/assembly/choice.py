"""Which components run."""

from collections.abc import Mapping

from enginecore.assembly.limits import Limits
from enginecore.errors import ConfigurationError
from enginecore.plugin import KINDS, Component, Kind
from enginecore.settings import TABLES, EngineSettings, Loaded

PARTS: Mapping[Kind, Kind] = {"victim": "scheduler", "eviction": "kv_cache_manager"}
"""Kinds that only serve a component of another kind, if it declares so by the capability of that name."""


def choose_components(loaded: Loaded) -> dict[Kind, Component]:
    """The component that runs for each kind. A part that nobody uses is left out.

    Raises:
        ConfigurationError: somebody chose a part that nobody would use.
        PluginError: a component cannot be had.
    """
    chosen: dict[Kind, Component] = {
        kind: loaded.registry.get(kind, loaded.settings.component(kind).name) for kind in KINDS if kind not in PARTS
    }
    for kind, owner_kind in PARTS.items():
        owner, name = chosen[owner_kind], loaded.settings.component(kind).name
        if kind in owner.capabilities:
            chosen[kind] = loaded.registry.get(kind, name)
        else:
            _check_default(
                kind, name, f"{owner_kind} {owner.name!r} decides that itself", f"choose another {owner_kind}"
            )
    return chosen


def without_idle(components: Mapping[Kind, Component], limits: Limits) -> Mapping[Kind, Component]:
    """The components that have something to do under these limits: without prefix caching nothing is evicted.

    Raises:
        ConfigurationError: somebody chose one that has not.
    """
    if limits.enable_prefix_caching or "eviction" not in components:
        return components
    cure = "set enable_prefix_caching = true (a model that is not causal cannot have it)"
    _check_default("eviction", components["eviction"].name, "prefix caching is off", cure)
    return {kind: component for kind, component in components.items() if kind != "eviction"}


def _check_default(kind: Kind, name: str, reason: str, cure: str) -> None:
    """Refuse the choice of a part that would do nothing; the default is no choice."""
    table = TABLES[kind]
    default = EngineSettings.model_fields[table].default.use
    if name != default:
        raise ConfigurationError(
            f"{table}.use = {name!r} has no effect, since {reason}: leave it out (the default is {default!r}), "
            f"or {cure}"
        )
