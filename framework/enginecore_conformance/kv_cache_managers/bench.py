"""Bench for checks of KV cache managers: makes runs, and explores traces."""

from typing import Any

from enginecore_conformance.checks import Violation
from enginecore_conformance.exploration import Exploration, Family
from enginecore_conformance.kv_cache_managers.run import KVCacheRun
from enginecore_conformance.kv_cache_managers.traffic import traces
from enginecore_conformance.parts import Parts
from enginecore_conformance.subject import Subject
from enginecore_conformance.trace import Trace

NUM_CACHED, NUM_UNCACHED = 220, 30
"""Traces that are drawn, with and without prefix caching."""


class KVCacheBench:
    """Makes runs of one KV cache manager.

    Attributes:
        subject: The component under check.
        parts: The component, and the parts that it works with.
        caches: Whether it declares prefix_caching.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.parts = Parts(subject.loaded)
        self.caches = "prefix_caching" in self.parts.components["kv_cache_manager"].capabilities
        families = [Family(traces(caching=False), NUM_UNCACHED)]
        if self.caches:
            families.insert(0, Family(traces(caching=True), NUM_CACHED))
        self._exploration = Exploration(self.play, families)

    def start(self, parts: Parts | None = None, **conditions: Any) -> KVCacheRun:
        """A run under conditions that go with what it declares."""
        caching = {} if self.caches else {"enable_prefix_caching": False}
        return KVCacheRun.of(parts or self.parts, {**conditions, **caching})

    def play(self, trace: Trace) -> None:
        """A trace to its end.

        Raises:
            BrokenRule: a rule breaks.
        """
        KVCacheRun.of(self.parts, trace.conditions).play(trace)

    def broken_rules(self) -> list[str]:
        """Rules that any trace broke."""
        return list(self._exploration.findings)

    def require_kept(self, rule: str) -> None:
        """Require that no trace breaks a rule.

        Raises:
            Violation: one of them broke this rule.
        """
        finding = self._exploration.smallest(rule)
        if finding is None:
            return
        options = self.subject.options.for_run
        test = finding.trace.as_test(KVCacheRun, rule, self.subject.reference, options)
        raise Violation(f"{finding.error.seen}\n\nA regression test:\n\n{test}\n", "what the rule says")

    def close(self) -> None:
        """Nothing is left of a run."""
