"""The kit for schedulers, policies under the toolkit's mechanism among them.

Most rules are enforced in every step of every run, by the watch that `debug.check_components` puts on. Random traces,
drawn by Hypothesis, and a grid of executors are played once for all of these checks; a trace that breaks a rule is made
as small as possible and printed as a test. The other checks each stage what they are about.
"""

from typing import Any

from enginecore.plugin import Component
from enginecore_conformance.checks import Check, checks_of
from enginecore_conformance.kits import Kit, MakeBench
from enginecore_conformance.schedulers import abilities, bounds, moments, repetition, rules, weight
from enginecore_conformance.schedulers.bench import SchedulerBench
from enginecore_conformance.schedulers.knobs import knob_checks
from enginecore_conformance.schedulers.run import SchedulerRun
from enginecore_conformance.subject import Subject

__all__ = ["CHECKS", "KIT", "SchedulerRun"]

CHECKS: tuple[Check[Any], ...] = (*rules.CHECKS, *checks_of(abilities, bounds, moments, repetition, weight))
"""All checks of schedulers. A component has one more for each of its own settings."""


def _checks_for(component: Component) -> tuple[Check[Any], ...]:
    return (*CHECKS, *knob_checks(component))


def _benches(subject: Subject) -> MakeBench:
    bench = SchedulerBench(subject)
    return lambda check: bench


KIT = Kit(checks_for=_checks_for, benches=_benches)
