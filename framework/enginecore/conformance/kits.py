"""Which kinds of component there is a kit for, and where it is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from enginecore.conformance.checks import Bench, Check
from enginecore.conformance.subject import Subject
from enginecore.errors import ConfigurationError
from enginecore.plugin import Component, Kind

MODULES: Mapping[Kind, str] = {
    "scheduler": "enginecore.conformance.schedulers",
    "victim": "enginecore.conformance.victims",
    "kv_cache_manager": "enginecore.conformance.kv_cache_managers",
    "eviction": "enginecore.conformance.evictions",
    "transport": "enginecore.conformance.transports",
}
"""Modules with a `KIT`, by kind. Imported when a component of that kind is checked."""

MakeBench = Callable[[Check[Any]], Bench]


@dataclass(frozen=True, slots=True)
class Kit:
    """All checks of one kind of component.

    Attributes:
        checks_for: The checks of a component, before its capabilities choose among them.
        benches: For a subject, what makes the bench of each check. What a subject's checks share is made in here.
    """

    checks_for: Callable[[Component], tuple[Check[Any], ...]]
    benches: Callable[[Subject], MakeBench]


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
