"""Executors with one bug each, around the oracle or the runner of `single`, and the check that must see it."""

from typing import Any

from enginecore.plugin import Component
from enginecore_conformance.oracle.settings import OracleSettings
from enginecore_torch.settings import SingleExecutorSettings
from tests.conformance.executors.mutants import books, deferring, endings, real, tokens
from tests.conformance.executors.mutants.base import Dying, Executor, WithWorkers


def component_of(mutant: Any) -> Component:
    settings: Any = SingleExecutorSettings if issubclass(mutant, real.Single) else OracleSettings
    return Component(kind="executor", name=mutant.__name__, factory=mutant, settings=settings)


PLAIN, PLAIN_DYING, PLAIN_WITH_WORKERS = map(component_of, (Executor, Dying, WithWorkers))

MUTANTS: dict[Any, Component] = {
    value: component_of(value)
    for module in (books, tokens, deferring, endings, real)
    for value in vars(module).values()
    if isinstance(value, type) and vars(value).get("caught_by")
}
