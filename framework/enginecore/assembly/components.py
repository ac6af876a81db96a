"""The components that the settings choose: one per kind, and the parts that they use."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from enginecore.errors import ConfigurationError
from enginecore.kinds import KINDS
from enginecore.plugin import Component, KindSpec
from enginecore.settings import Loaded


@dataclass(frozen=True)
class ChosenComponents:
    """The components of one engine.

    Attributes:
        by_kind: Component by name of its kind. A part that no component uses is left out.
    """

    loaded: Loaded
    by_kind: Mapping[str, Component]

    @property
    def names(self) -> dict[str, str]:
        """Name of the component by name of its kind."""
        return {kind: component.name for kind, component in self.by_kind.items()}

    def declares(self, kind: str, capability: str) -> bool:
        """Whether the component of this kind declares a capability."""
        return capability in self.by_kind[kind].capabilities

    def build(self, kind: str, context: Any) -> Any:
        """Build the component of a kind; None if it is a part that no component uses.

        Raises:
            EngineCoreError: raised by its factory on purpose.
            PluginError: it cannot be built, or is not what its kind says.
        """
        return self.loaded.build(kind, context) if kind in self.by_kind else None

    def without(self, kind: KindSpec, reason: str, remedy: str) -> "ChosenComponents":
        """These without a part that would do nothing.

        Raises:
            ConfigurationError: the settings choose one that is not the default; gives `reason` and
                `remedy`.
        """
        check_unused(kind, self.loaded, reason, remedy)
        return replace(self, by_kind={name: each for name, each in self.by_kind.items() if name != kind.name})


def choose_components(loaded: Loaded) -> ChosenComponents:
    """The component of each kind of the engine, and of each part that one of them uses.

    Raises:
        ConfigurationError: the settings choose a part that no component would use.
        PluginError: there is no such component.
    """
    chosen = {kind.name: _component(kind, loaded) for kind in KINDS if kind.part_of is None}
    for kind in loaded.registry.kinds.values():
        owner = chosen.get(kind.part_of or "")
        if owner is None:
            continue
        if kind.name not in owner.capabilities:
            check_unused(
                kind, loaded, f"{owner.kind} {owner.name!r} decides that itself", f"choose another {owner.kind}"
            )
        elif _use(kind, loaded) is not None:
            chosen[kind.name] = _component(kind, loaded)
    return ChosenComponents(loaded, chosen)


def check_unused(kind: KindSpec, loaded: Loaded, reason: str, remedy: str) -> None:
    """Refuse the choice of a part that would do nothing. The default is no choice.

    Raises:
        ConfigurationError: the settings choose another one; gives `reason` and `remedy`.
    """
    name = _use(kind, loaded)
    if name == kind.default:
        return
    default = "unset" if kind.default is None else repr(kind.default)
    raise ConfigurationError(
        f"{kind.table}.use = {name!r} has no effect, since {reason}: leave it out (the default is {default}), "
        f"or {remedy}"
    )


def _component(kind: KindSpec, loaded: Loaded) -> Component:
    return loaded.registry.get(kind.name, loaded.settings.component(kind.name).name)


def _use(kind: KindSpec, loaded: Loaded) -> str | None:
    return loaded.settings.component(kind.name).table.use
