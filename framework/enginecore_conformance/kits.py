"""Which kinds of component there is a kit for, and where it is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from enginecore.errors import ConfigurationError
from enginecore.plugin import Component, Kind
from enginecore_conformance.checks import Bench, Check
from enginecore_conformance.subject import Options, Subject

MODULES: Mapping[Kind, str] = {
    "scheduler": "enginecore_conformance.schedulers",
    "victim": "enginecore_conformance.victims",
    "kv_cache_manager": "enginecore_conformance.kv_cache_managers",
    "eviction": "enginecore_conformance.evictions",
    "executor": "enginecore_conformance.executors",
    "transport": "enginecore_conformance.transports",
}
"""Modules with a `KIT`, by kind. Imported when a component of that kind is checked."""

MakeBench = Callable[[Check[Any]], Bench]


@dataclass(frozen=True, slots=True)
class Kit:
    """All checks of one kind of component.

    Attributes:
        checks_for: The checks of a component, before its capabilities choose among them.
        benches: For a subject, what makes the bench of each check. What a subject's checks share is made in here;
            what of it must be cleared away goes onto the subject's `clearing`.
        options: How such a component may be checked: `Options`, or a class that adds what this kind needs.
        found_out: What only a component that is built can tell of itself. Checks that need it are prepared for all
            components of the kind, and raise `NotApplicable`.
    """

    checks_for: Callable[[Component], tuple[Check[Any], ...]]
    benches: Callable[[Subject], MakeBench]
    options: type[Options] = Options
    found_out: frozenset[str] = frozenset()


def kit_of(kind: Kind) -> Kit:
    """The kit for a kind.

    Raises:
        ConfigurationError: there is none.
    """
    if kind not in MODULES:
        raise ConfigurationError(
            f"there is no kit for components of kind {kind!r}; there are kits for {', '.join(MODULES)}"
        )
    try:
        kit: Kit = import_module(MODULES[kind]).KIT
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        raise ConfigurationError("checks need Hypothesis: pip install 'enginecore[conformance]'") from error
    return kit
