"""The kit for executors: every sentence of their contract, `enginecore.interfaces.executor`, as a named check.

In a notebook:

    from enginecore.conformance.executors import check_executor
    print(check_executor("single"))

As the tests of a package that offers an executor, with pytest:

    from enginecore.conformance.executors import parametrize
    from my_executor import COMPONENT

    @parametrize(COMPONENT)
    def test_contract(check):
        check()

Which checks apply is found out from the executor: what it declares in `ExecutorCapabilities`, and whether it started
processes. It runs a tiny random Llama unless a model is named.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import SkipTest

from enginecore.clock import Clock, RealClock
from enginecore.conformance.checks import Check, Report, Result, checks_of, choose, run_check
from enginecore.conformance.executors import (
    batches,
    describing,
    failing,
    invariance,
    life,
    requests,
    sampling,
)
from enginecore.conformance.executors.bench import ExecutorBench
from enginecore.conformance.executors.subject import WORDS, Options, Subject
from enginecore.interfaces import Executor
from enginecore.plugin import Component

__all__ = ["CHECKS", "PreparedCheck", "check_executor", "parametrize", "prepare"]

PATIENCE = 30.0
"""Seconds to wait for a step of a tiny model."""
TIME_LIMIT = 200.0
"""Seconds for one check: a call that never returns is noticed after these."""

CHECKS: tuple[Check[ExecutorBench], ...] = checks_of(describing, requests, invariance, sampling, batches, failing, life)
"""All checks of executors. Those after which an executor is of no more use come last."""


class PreparedCheck:
    """A check and the executor that it checks."""

    def __init__(self, check: Check[ExecutorBench], subject: Subject, *, reason: str, time_limit: float) -> None:
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
        result = run_check(self.check, lambda: ExecutorBench(self._subject, self.check.needs), self._time_limit)
        if result.outcome == "failed":  # in what state it is, nobody knows
            self._subject.drop()
        return result

    def close(self) -> None:
        """Shut down the executor that this check and those prepared with it share; they can still be run."""
        self._subject.drop()

    def __call__(self) -> None:
        """Run it.

        Raises:
            InvariantError: the rule is broken: what it says, what was seen, and what would be right.
            SkipTest: it is not for this executor; pytest and unittest count the test as skipped.
        """
        result = self.run()
        if result.outcome == "skipped":
            raise SkipTest(result.reason)
        result.require()


def prepare(
    component: Component | str,
    *,
    settings: Mapping[str, Any] | None = None,
    model: str | None = None,
    dtype: str = "float32",
    device: str = "auto",
    skip: Mapping[str, str] | None = None,
    allow: Sequence[str] | None = None,
    workers: Callable[[Executor], Sequence[int]] | None = None,
    clock: Callable[[], Clock] = RealClock,
    patience: float = PATIENCE,
    time_limit: float = TIME_LIMIT,
) -> tuple[PreparedCheck, ...]:
    """The checks of an executor, ready to be run. The executor is built when the first one runs.

    Args:
        component: The executor, or the name of one that is installed.
        settings: Its own settings.
        model: What it is to run; None: a random Llama of 200 kB that the kit writes, without a tokenizer.
        dtype: Of weights and activations. Whether company changes no token can be asked in "float32" only.
        device: Where it is to run.
        skip: Why a check need not pass, by name of the check.
        allow: As `plugins.allow`; must name the package of an executor of a third party that is given by name.
        workers: Process ids of its workers; None: the processes that were started while it was built.
        clock: Makes its clock: `VirtualClock` for one whose steps end by `clock.call_at` after a long time.
        patience: Seconds to wait for a step.
        time_limit: Seconds for one check, after which it has failed, wherever it hangs.

    Raises:
        ConfigurationError: the settings are wrong, or `skip` names no check, or gives no reason.
        PluginError: there is no such executor.
    """
    options = Options(model=model, dtype=dtype, device=device, clock=clock, patience=patience, workers=workers)
    subject = Subject(component, settings, allow, options)
    chosen = choose(CHECKS, WORDS, skip or {})  # which of them it has is known once it is built
    return tuple(PreparedCheck(item, subject, reason=reason, time_limit=time_limit) for item, reason in chosen)


def check_executor(component: Component | str, **options: Any) -> Report:
    """Run all checks of an executor; takes what `prepare` takes. `require()` of the report raises if one failed."""
    prepared = prepare(component, **options)
    name = component if isinstance(component, str) else component.name
    try:
        return Report(f"executor {name!r}", tuple(item.run() for item in prepared))
    finally:
        prepared[0].close()


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
