"""Traces until a rule breaks, and the smallest that Hypothesis finds to break it."""

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from hypothesis import HealthCheck, Phase, Verbosity, find, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException
from hypothesis.strategies import SearchStrategy

from enginecore.conformance.checks import Violation
from enginecore.conformance.trace import Trace
from enginecore.core.watching import BrokenRule

SHRINKING_TIME = 6.0
"""Seconds for making one failing trace smaller."""


@contextmanager
def _silence() -> Iterator[None]:
    """What goes wrong on purpose is logged; nobody wants to read that a thousand times."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@dataclass(frozen=True, slots=True)
class Finding:
    """A trace on which a rule breaks.

    Attributes:
        trace: The smallest that was found.
        error: What was seen on it.
    """

    trace: Trace
    error: BrokenRule


@dataclass(frozen=True, slots=True)
class Family:
    """Traces of one sort.

    Attributes:
        traces: All of them.
        count: How many are tried.
    """

    traces: SearchStrategy[Trace]
    count: int


class Exploration:
    """Plays traces, once for all checks that ask for what broke.

    Args:
        play: Plays a trace; raises BrokenRule.
        families: Where traces come from.
        examples: Traces that are played beside.
    """

    def __init__(
        self, play: Callable[[Trace], object], families: Sequence[Family], examples: Sequence[Trace] = ()
    ) -> None:
        self._play = play
        self._families = families
        self._examples = examples
        self._findings: dict[str, Finding] | None = None
        self._current: Trace | None = None  # while one is being played

    def findings(self) -> dict[str, Finding]:
        """What broke, by rule.

        Raises:
            Violation: a trace on which an earlier check hangs.
        """
        if self._findings is None:
            if self._current is not None:
                raise Violation(f"an earlier check has not returned from this trace:\n{self._current}", "it ends")
            findings: dict[str, Finding] = {}
            for family in self._families:
                self._explore(family, findings)
            for trace in self._examples:
                error = self._attempt(trace)
                if error is not None and error.rule not in findings:
                    self._explore(Family(_subsets(trace), 30), findings)
                    findings.setdefault(error.rule, Finding(trace, error))
            self._findings = findings
        return self._findings

    def _explore(self, family: Family, findings: dict[str, Finding]) -> None:
        """Look for rules that break, one after the other, until no more do."""
        while True:
            search = _Search(self._attempt, known=set(findings))
            search.run(family)
            if search.finding is None:
                return
            findings[search.finding.error.rule] = search.finding

    def _attempt(self, trace: Trace) -> BrokenRule | None:
        self._current = trace
        try:
            with _silence():
                self._play(trace)
        except BrokenRule as error:
            return error
        finally:
            self._current = None
        return None


def _subsets(trace: Trace) -> SearchStrategy[Trace]:
    """The same trace with some moves left out; at first hardly any."""
    flags = st.tuples(*[st.sampled_from((False, *[True] * 40))] * len(trace.moves))
    return flags.map(lambda kept: Trace(trace.conditions, tuple(itertools.compress(trace.moves, kept))))


class _Search:
    """The search for a trace that breaks a rule of which no such trace is known."""

    def __init__(self, attempt: Callable[[Trace], BrokenRule | None], known: set[str]) -> None:
        self.finding: Finding | None = None
        self._attempt = attempt
        self._known = known
        self._deadline = 0.0

    def run(self, family: Family) -> None:
        """Look, and make what is found smaller."""
        chosen = settings(
            max_examples=family.count,
            phases=(Phase.generate, Phase.shrink),
            database=None,
            derandomize=False,
            deadline=None,
            verbosity=Verbosity.quiet,
            suppress_health_check=list(HealthCheck),
        )
        try:
            find(family.traces, self._breaks, settings=chosen, random=Random(0))
        except HypothesisException:  # none is found; or it breaks only now and then, and what was seen first stands
            return

    def _breaks(self, trace: Trace) -> bool:
        if self.finding and time.monotonic() > self._deadline:
            return False
        error = self._attempt(trace)
        if error is None or error.rule in self._known:
            return False
        if self.finding is None:
            self._deadline = time.monotonic() + SHRINKING_TIME
            self.finding = Finding(trace, error)
        if error.rule != self.finding.error.rule:
            return False
        if trace.size <= self.finding.trace.size:
            self.finding = Finding(trace, error)
        return True
