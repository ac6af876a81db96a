"""Transports with one bug each, around the Unix socket of the example, and the check that must see it."""

from enginecore.plugin import Component
from tests.conformance.transports.example import UNIX
from tests.conformance.transports.mutants import carrying, clients, departures, life, sending, waiting
from tests.conformance.transports.mutants.proxies import Transport


def component_of(mutant: type) -> Component:
    if issubclass(mutant, clients.Transport):
        return Component(kind="transport", name=mutant.__name__, factory=mutant, capabilities=frozenset({"sync"}))
    return Component(
        kind="transport",
        name=mutant.__name__,
        factory=mutant,
        settings=UNIX.UnixSocketSettings,
        capabilities=frozenset({"channels"}),
    )


PLAIN = component_of(Transport)
# those whose checks start processes, which import them by name
DELIVERS_HALVES = component_of(departures.DeliversHalves)
DELIVERS_HALVES_TO_FRONT_ENDS = component_of(departures.DeliversHalvesToFrontEnds)
NEVER_ENDS_FOR_THOSE_WHO_ATTACHED = component_of(departures.NeverEndsForThoseWhoAttached)
MIXES_FRONT_ENDS = component_of(carrying.MixesFrontEnds)

MUTANTS: dict[type, Component] = {
    value: component_of(value)
    for module in (carrying, waiting, sending, departures, life, clients)
    for value in vars(module).values()
    if isinstance(value, type) and vars(value).get("caught_by")
}
MUTANTS[departures.DeliversHalves] = DELIVERS_HALVES
MUTANTS[departures.DeliversHalvesToFrontEnds] = DELIVERS_HALVES_TO_FRONT_ENDS
MUTANTS[departures.NeverEndsForThoseWhoAttached] = NEVER_ENDS_FOR_THOSE_WHO_ATTACHED
MUTANTS[carrying.MixesFrontEnds] = MIXES_FRONT_ENDS
