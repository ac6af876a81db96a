"""Entry points of checks: for notebooks and scripts, and for the tests of a package."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any
from unittest import SkipTest

from enginecore.plugin import Component
from enginecore_conformance.checks import Check, Report, Result, choose, run_check
from enginecore_conformance.kits import Kit, MakeBench, kit_of
from enginecore_conformance.subject import Subject, kind_of, registry_with


class PreparedCheck:
    """A check and the component that it checks.

    Attributes:
        check: The check.
        reason: Why its rule need not hold; empty: it must.
    """

    def __init__(self, check: Check[Any], subject: Subject, make_bench: MakeBench, *, reason: str) -> None:
        self.check = check
        self.reason = reason
        self._subject = subject
        self._make_bench = make_bench

    def __str__(self) -> str:
        return self.check.name

    def run(self) -> Result:
        """The outcome. A check that is opted out of has failed if it passes: the opt-out is out of
        date.

        One that turns out not to be for this component is skipped, opted out of or not.
        """
        result = self._attempt()
        if not self.reason or result.outcome == "skipped":
            return result
        if result.outcome == "failed":
            return replace(result, outcome="skipped", reason=self.reason)
        right = f"no opt-out where none is needed: take {self.check.name!r} out of skip"
        return replace(result, outcome="failed", seen="the rule holds", right=right)

    def __call__(self) -> None:
        """Run the check, opted out of or not.

        Raises:
            InvariantError: the rule is broken: what it says, what was seen, and what would be
                right.
            SkipTest: it turns out not to be for this component; pytest and unittest count the test
                as skipped.
        """
        result = self._attempt()
        if result.outcome == "skipped":
            raise SkipTest(result.reason)
        result.require()

    def close(self) -> None:
        """Clear away what this check shares with those prepared with it, such as a model; they can
        still be run.
        """
        self._subject.clearing.close()

    def _attempt(self) -> Result:
        result = run_check(self.check, lambda: self._make_bench(self.check), self._subject.options.time_limit)
        if result.outcome == "failed":
            self.close()  # its state is unknown
        return result


def prepare(
    component: Component | str,
    *,
    skip: Mapping[str, str] | None = None,
    only: Collection[str] | None = None,
    **options: Any,
) -> tuple[PreparedCheck, ...]:
    """The checks of a component, ready to be run.

    Args:
        component: The component, "kind:name" of one that is installed, such as "scheduler:fcfs", or
            "module:NAME".
        skip: Opt-outs: why a rule need not hold, by name of the check. They are strict: a check
            that is opted out of and passes has failed.
        only: Names of the checks that are wanted; None: all.
        **options: The fields of `Options`: `settings`, `engine`, `allow`, `patience`, `time_limit`;
            for executors those of `executors.ExecutorOptions`, which has `virtual` and `workers`
            besides.

    Raises:
        ConfigurationError: the settings are wrong, there is no kit for this kind, `skip` or `only`
            names no check of this component, or `skip` gives no reason.
        PluginError: there is no such component.
    """
    return _prepare(*_find(component, options), skip, only)


def _find(component: Component | str, options: Mapping[str, Any]) -> tuple[Kit, Subject]:
    registry = registry_with(options.get("allow"))
    kit = kit_of(kind_of(component, registry), registry.kinds.values())
    return kit, Subject.find(component, kit.options(**options))


def _prepare(
    kit: Kit, subject: Subject, skip: Mapping[str, str] | None, only: Collection[str] | None
) -> tuple[PreparedCheck, ...]:
    capabilities = subject.component.capabilities | kit.found_out
    chosen = choose(kit.checks_for(subject.component), capabilities, skip or {}, only)
    make_bench = kit.benches(subject)
    return tuple(PreparedCheck(item, subject, make_bench, reason=reason) for item, reason in chosen)


def check_component(
    component: Component | str,
    *,
    skip: Mapping[str, str] | None = None,
    only: Collection[str] | None = None,
    **options: Any,
) -> Report:
    """Run the checks of a component; takes what `prepare` takes.

    `print` the report to read it; its `require()` raises if a check failed.
    """
    kit, subject = _find(component, options)
    prepared = _prepare(kit, subject, skip, only)
    with subject.clearing:
        results = tuple(item.run() for item in prepared)
    return Report(f"{subject.component.kind} {subject.component.name!r}", results)


def parametrize(component: Component | str, **options: Any) -> Callable[[Any], Any]:
    """Make a test function with an argument `check` one pytest test for each check; takes what
    `prepare` takes.

    An opt-out becomes a strict xfail with its reason.
    """
    import pytest

    mark: Callable[[Any], Any] = pytest.mark.parametrize("check", cases_of(prepare(component, **options)))
    return mark


def cases_of(prepared: Collection[PreparedCheck], prefix: str = "") -> list[Any]:
    """Prepared checks as parameters of a pytest test."""
    import pytest

    from enginecore.errors import InvariantError

    return [
        pytest.param(
            item,
            id=f"{prefix}{item}",
            marks=[pytest.mark.xfail(reason=item.reason, strict=True, raises=InvariantError)] if item.reason else [],
        )
        for item in prepared
    ]
