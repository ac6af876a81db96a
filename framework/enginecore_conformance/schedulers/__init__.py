"""Kit for schedulers, and for policies that run under the toolkit's mechanism.

Most rules are enforced in every step of every run, by the watch that `debug.check_components` puts
on. Random traces, drawn by Hypothesis, and a grid of executors are played once for all of these
checks; a trace that breaks a rule is made as small as possible and printed as a test. The other
checks each stage what they are about.
"""

from typing import Any

from enginecore_conformance.checks import Check, checks_of
from enginecore_conformance.schedulers import abilities, bounds, moments, repetition, rules, weight
from enginecore_conformance.schedulers.bench import SchedulerBench
from enginecore_conformance.schedulers.knobs import kit_with_knobs
from enginecore_conformance.schedulers.run import SchedulerRun

__all__ = ["CHECKS", "KIT", "SchedulerRun"]

CHECKS: tuple[Check[Any], ...] = (*rules.CHECKS, *checks_of(abilities, bounds, moments, repetition, weight))
"""All checks of schedulers. A component has one more for each of its own settings."""


KIT = kit_with_knobs(CHECKS, SchedulerBench)
