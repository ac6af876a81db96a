"""Exploration: random traces until a rule breaks, and the smallest one that breaks it."""

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, find, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException
from hypothesis.strategies import SearchStrategy

from enginecore.contracts import BrokenRule
from enginecore_conformance.checks import Violation
from enginecore_conformance.trace import Trace

SHRINKING_TIME = 4.0
"""Seconds for making one failing trace smaller."""
HEALTH: Any = list(HealthCheck)
ALL = settings(
    phases=(Phase.generate, Phase.shrink),
    database=None,
    deadline=None,
    verbosity=Verbosity.quiet,
    suppress_health_check=HEALTH,
)


@contextmanager
def _silence() -> Iterator[None]:
    """Keep failures that are provoked on purpose, thousands of them, out of the log."""
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
        trace: The trace.
        error: The error that the trace led to.
        family: Where it comes from.
    """

    trace: Trace
    error: BrokenRule
    family: "Family"


@dataclass(frozen=True, slots=True)
class Family:
    """Traces of one sort.

    Attributes:
        traces: All traces of the family.
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

    @property
    def findings(self) -> Mapping[str, Finding]:
        """Findings: what broke, by rule.

        Raises:
            Violation: a trace on which an earlier check hangs.
        """
        if self._findings is None:
            if self._current is not None:
                raise Violation(f"an earlier check has not returned from this trace:\n{self._current}", "it ends")
            findings: dict[str, Finding] = {}
            for family in self._families:
                _look(family, partial(self._note, family=family, findings=findings))
            for trace in self._examples:
                self._note(trace, Family(_subsets(trace), 40), findings)
            self._findings = findings
        return self._findings

    def _note(self, trace: Trace, family: Family, findings: dict[str, Finding]) -> bool:
        error = self._attempt(trace)
        if error is not None:
            findings.setdefault(error.rule, Finding(trace, error, family))
        return False

    def smallest(self, rule: str) -> Finding | None:
        """The smallest trace that breaks this rule, as far as some seconds go; None: nothing broke
        it.
        """
        finding = self.findings.get(rule)
        if finding is None:
            return None
        shrinking = _Shrinking(self._attempt, finding)
        _look(finding.family, shrinking.breaks)
        return shrinking.finding

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


def _look(family: Family, breaks: Callable[[Trace], bool]) -> None:
    """Let Hypothesis draw traces until one breaks something, then smaller ones."""
    # none may be found; or it breaks only now and then, and what was seen first stands
    with suppress(HypothesisException):
        find(family.traces, breaks, settings=settings(ALL, max_examples=family.count), random=Random(0))


def _subsets(trace: Trace) -> SearchStrategy[Trace]:
    """The same trace with some moves left out; at first hardly any."""
    flags = st.tuples(*[st.sampled_from((False, *[True] * 60))] * len(trace.moves))

    @st.composite
    def subset(draw: Callable[[SearchStrategy[tuple[bool, ...]]], tuple[bool, ...]]) -> Trace:
        return Trace(trace.conditions, tuple(itertools.compress(trace.moves, draw(flags))))

    return subset()


class _Shrinking:
    """The search for a smaller trace that breaks a rule.

    Attributes:
        finding: The smallest so far.
    """

    def __init__(self, attempt: Callable[[Trace], BrokenRule | None], finding: Finding) -> None:
        self.finding = finding
        self._attempt = attempt
        self._deadline = time.monotonic() + SHRINKING_TIME

    def breaks(self, trace: Trace) -> bool:
        """Whether a trace breaks the rule."""
        if time.monotonic() > self._deadline:
            return False
        error = self._attempt(trace)
        if error is None or error.rule != self.finding.error.rule:
            return False
        if trace.size <= self.finding.trace.size:
            self.finding = Finding(trace, error, self.finding.family)
        return True
