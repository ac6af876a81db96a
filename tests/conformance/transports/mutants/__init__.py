"""Transports with one bug each, around the Unix socket of the example, and the check that must see it."""

from enginecore.plugin import Component
from tests.conformance.transports.example import UNIX
from tests.conformance.transports.mutants import carrying, departures, life, sending, waiting
from tests.conformance.transports.mutants.proxies import Transport


def component_of(mutant: type[Transport]) -> Component:
    return Component(
        kind="transport",
        name=mutant.__name__,
        factory=mutant,
        settings=UNIX.UnixSocketSettings,
        capabilities=frozenset({"channels"}),
    )


PLAIN = component_of(Transport)
# those whose check starts processes, which import them by name
DELIVERS_HALVES = component_of(departures.DeliversHalves)
DELIVERS_HALVES_TO_FRONT_ENDS = component_of(departures.DeliversHalvesToFrontEnds)

MUTANTS: dict[type[Transport], Component] = {
    value: component_of(value)
    for module in (carrying, waiting, sending, departures, life)
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, Transport) and value.caught_by
}
MUTANTS[departures.DeliversHalves] = DELIVERS_HALVES
MUTANTS[departures.DeliversHalvesToFrontEnds] = DELIVERS_HALVES_TO_FRONT_ENDS
