"""Kit for transports: each sentence of `enginecore.interfaces.transport` as a named check.

Checks start processes, so a transport that is not installed must be importable there: assign the
Component to a name at the top level of a module. One of a third party that is given by name must be
named by the option `allow`.

Which checks apply, the component's capabilities say: "channels" of both ends of a channel, "sync"
and "channels" of the client that the kernel makes with it.
"""

from typing import Any

from enginecore_conformance.checks import Bench, Check, checks_of
from enginecore_conformance.kits import Kit, MakeBench
from enginecore_conformance.subject import Subject
from enginecore_conformance.transports import (
    carrying,
    clients,
    departures,
    life,
    processes,
    sending,
    strangers,
    waiting,
)
from enginecore_conformance.transports.bench import ChannelBench
from enginecore_conformance.transports.client_bench import ClientBench

__all__ = ["CHANNEL_CHECKS", "CHECKS", "CLIENT_CHECKS", "KIT"]

CHANNEL_CHECKS: tuple[Check[ChannelBench], ...] = checks_of(life, carrying, waiting, sending, departures, strangers)
"""Checks of both ends of a channel."""
CLIENT_CHECKS: tuple[Check[ClientBench], ...] = checks_of(clients, processes)
"""Checks of the client that the kernel makes with a transport."""
CHECKS: tuple[Check[Any], ...] = (*CHANNEL_CHECKS, *CLIENT_CHECKS)
"""All checks of transports."""


def _benches(subject: Subject) -> MakeBench:
    def make(check: Check[Any]) -> Bench:
        return ChannelBench(subject) if check in CHANNEL_CHECKS else ClientBench(subject)

    return make


KIT = Kit(checks_for=lambda component: CHECKS, benches=_benches)
