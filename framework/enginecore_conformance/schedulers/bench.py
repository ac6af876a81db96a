"""Bench for checks of schedulers: makes runs, and explores traces."""

from typing import Any

from enginecore.contracts import BrokenRule
from enginecore_conformance.checks import Violation
from enginecore_conformance.exploration import Exploration, Family
from enginecore_conformance.parts import Parts
from enginecore_conformance.schedulers.incidents import incidents
from enginecore_conformance.schedulers.run import SchedulerRun
from enginecore_conformance.schedulers.traffic import QUIET, WILD, grid, stages, traces
from enginecore_conformance.subject import Subject
from enginecore_conformance.trace import Trace

NUM_QUIET, NUM_WILD = 80, 110
"""Traces that are drawn, without and with whatever can go wrong."""


class SchedulerBench:
    """Makes runs of one scheduler.

    Attributes:
        subject: The component under check.
        parts: The component, and the parts that it works with.
        capabilities: Capabilities that the scheduler declares and its parts allow.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.parts = Parts(subject.loaded)
        scheduler, manager = self.parts.components["scheduler"], self.parts.components["kv_cache_manager"]
        self.capabilities = scheduler.capabilities - ({"prefix_caching"} - manager.capabilities)
        quiet, wild = (traces(self.capabilities, kinds) for kinds in (QUIET, WILD))
        families = [Family(quiet, NUM_QUIET), Family(wild, NUM_WILD)]
        examples = [*grid(self.capabilities), *stages(self.capabilities), *incidents(self.capabilities)]
        self._exploration = Exploration(self.play, families, examples)

    def start(self, parts: Parts | None = None, **conditions: Any) -> SchedulerRun:
        """A run under conditions that go with the scheduler's capabilities."""
        fitting: dict[str, Any] = dict(conditions)
        if "chunked_prefill" not in self.capabilities:
            longest = fitting.get("max_model_len", 256)
            fitting.update(enable_chunked_prefill=False, max_num_batched_tokens=longest)
        if "prefix_caching" not in self.capabilities:
            fitting["enable_prefix_caching"] = False
        return SchedulerRun.of(parts or self.parts, fitting)

    def play(self, trace: Trace, parts: Parts | None = None) -> SchedulerRun:
        """A trace to its end.

        Raises:
            BrokenRule: a rule breaks.
        """
        run = SchedulerRun.of(parts or self.parts, trace.conditions)
        run.play(trace)
        return run

    def broken_rules(self) -> list[str]:
        """Rules that any trace broke."""
        return list(self._exploration.findings)

    def require_kept(self, rule: str) -> None:
        """Require that no trace breaks a rule.

        Raises:
            Violation: one of them broke this rule.
        """
        finding = self._exploration.smallest(rule)
        if finding is not None:
            self.fail(finding.trace, finding.error)

    def fail(self, trace: Trace, error: BrokenRule) -> None:
        """Raise a Violation that holds a regression test."""
        test = trace.as_test(SchedulerRun, error.rule, self.subject.reference, self.subject.options.for_run)
        raise Violation(f"{error.seen}\n\nA regression test:\n\n{test}\n", "what the rule says")

    def close(self) -> None:
        """Nothing is left of a run."""
