"""Conformance kits: what one holds, and how the kit of a kind is found."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from enginecore.errors import ConfigurationError
from enginecore.plugin import Component, KindSpec
from enginecore_conformance.checks import Bench, Check
from enginecore_conformance.subject import Options, Subject

MakeBench = Callable[[Check[Any]], Bench]


@dataclass(frozen=True, slots=True)
class Kit:
    """All checks of one kind of component.

    Attributes:
        checks_for: The checks of a component, before its capabilities choose among them.
        benches: For a subject, what makes the bench of each check. What a subject's checks share is made in here;
            what of it must be cleared away goes onto the subject's `clearing`.
        options: How such a component may be checked: `Options`, or a class that adds what this kind needs.
        found_out: Words that only a built component can declare. Checks that need it are prepared
            for all components of the kind, and raise `NotApplicable`.
    """

    checks_for: Callable[[Component], tuple[Check[Any], ...]]
    benches: Callable[[Subject], MakeBench]
    options: type[Options] = Options
    found_out: frozenset[str] = frozenset()


def kit_of(kind: KindSpec, kinds: Iterable[KindSpec]) -> Kit:
    """The kit that a kind's row names.

    Args:
        kind: The row.
        kinds: All rows, for the error that lists those with a kit.

    Raises:
        ConfigurationError: it names none, or the kit cannot be imported; says why.
    """
    if kind.kit is None:
        others = ", ".join(other.name for other in kinds if other.kit is not None)
        raise ConfigurationError(f"there is no kit for components of kind {kind.name!r}; there are kits for {others}")
    module, _, name = kind.kit.partition(":")
    try:
        kit: Kit = getattr(import_module(module), name or "KIT")
    except ModuleNotFoundError as error:
        if error.name == "hypothesis":
            raise ConfigurationError("checks need Hypothesis: pip install 'enginecore[conformance]'") from error
        raise ConfigurationError(f"the kit for {kind.name} cannot be imported from {kind.kit!r}: {error}") from error
    return kit
