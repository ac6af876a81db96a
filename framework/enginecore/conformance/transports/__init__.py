"""The kit for transports: every sentence of their contract, `enginecore.interfaces.transport`, as a named check.

In a notebook:

    from enginecore.conformance.transports import check_transport
    print(check_transport("zmq"))

As the tests of a package that offers a transport, with pytest:

    from enginecore.conformance.transports import parametrize
    from my_transport import COMPONENT

    @parametrize(COMPONENT)
    def test_contract(check):
        check()

Which checks apply, the component's capabilities say: "channels" of both ends of a channel, "sync" and "channels" of the
client that the kernel makes with it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from enginecore.conformance.checks import Check, Report, Result, checks_of, choose, run_check
from enginecore.conformance.transports import (
    carrying,
    clients,
    departures,
    life,
    processes,
    sending,
    strangers,
    waiting,
)
from enginecore.conformance.transports.bench import ChannelBench
from enginecore.conformance.transports.client_bench import ClientBench
from enginecore.conformance.transports.subject import Subject
from enginecore.plugin import Component

__all__ = ["CHANNEL_CHECKS", "CHECKS", "CLIENT_CHECKS", "PreparedCheck", "check_transport", "parametrize", "prepare"]

PATIENCE = 10.0
"""Seconds to wait for what a right transport does in milliseconds."""
TIME_LIMIT = 100.0
"""Seconds for one check: a call that never returns is noticed after these."""

CHANNEL_CHECKS: tuple[Check[ChannelBench], ...] = checks_of(life, carrying, waiting, sending, departures, strangers)
"""Checks of both ends of a channel."""
CLIENT_CHECKS: tuple[Check[ClientBench], ...] = checks_of(clients, processes)
"""Checks of the client that the kernel makes with a transport."""
CHECKS: tuple[Check[Any], ...] = (*CHANNEL_CHECKS, *CLIENT_CHECKS)
"""All checks of transports."""


class PreparedCheck:
    """A check and the transport that it checks."""

    def __init__(self, check: Check[Any], subject: Subject, *, reason: str, time_limit: float) -> None:
        """`reason`: why it is skipped; empty if it is not."""
        self.check = check
        self.reason = reason
        self._subject = subject
        self._time_limit = time_limit

    def __str__(self) -> str:
        return self.check.name

    def run(self) -> Result:
        """What comes of it."""
        if self.reason:
            return Result(check=self.check, outcome="skipped", reason=self.reason)
        bench = ChannelBench if self.check in CHANNEL_CHECKS else ClientBench
        return run_check(self.check, lambda: bench(self._subject), self._time_limit)

    def __call__(self) -> None:
        """Run it.

        Raises:
            InvariantError: the rule is broken: what it says, what was seen, and what would be right.
        """
        self.run().require()


def prepare(
    component: Component | str,
    *,
    settings: Mapping[str, Any] | None = None,
    skip: Mapping[str, str] | None = None,
    allow: Sequence[str] | None = None,
    patience: float = PATIENCE,
    time_limit: float = TIME_LIMIT,
) -> tuple[PreparedCheck, ...]:
    """The checks of a transport, ready to be run.

    Args:
        component: The transport, or the name of one that is installed. Checks start processes, so it must be importable
            there: assign it to a name at the top level of a module.
        settings: Its own settings.
        skip: Why a check need not pass, by name of the check.
        allow: As `plugins.allow`; must name the package of a transport of a third party that is given by name.
        patience: Seconds to wait for what a right transport does in milliseconds.
        time_limit: Seconds for one check, after which it has failed, wherever it hangs.

    Raises:
        ConfigurationError: the settings are wrong, or `skip` names no check, or gives no reason.
        PluginError: there is no such transport.
    """
    subject = Subject.find(component, settings, allow, patience)
    chosen = choose(CHECKS, subject.component.capabilities, skip or {})
    return tuple(PreparedCheck(item, subject, reason=reason, time_limit=time_limit) for item, reason in chosen)


def check_transport(component: Component | str, **options: Any) -> Report:
    """Run all checks of a transport; takes what `prepare` takes. `require()` of the report raises if one failed."""
    prepared = prepare(component, **options)
    name = component if isinstance(component, str) else component.name
    return Report(f"transport {name!r}", tuple(item.run() for item in prepared))


def parametrize(component: Component | str, **options: Any) -> Callable[[Any], Any]:
    """Make a test function with an argument `check` one test for each check; takes what `prepare` takes."""
    import pytest

    prepared = prepare(component, **options)
    cases = [
        pytest.param(item, id=str(item), marks=[pytest.mark.skip(reason=item.reason)] if item.reason else [])
        for item in prepared
    ]
    mark: Callable[[Any], Any] = pytest.mark.parametrize("check", cases)
    return mark
