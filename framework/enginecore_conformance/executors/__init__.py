"""Kit for executors: each sentence of `enginecore.interfaces.executor` as a named check.

    check_component("executor:multiproc", settings={"tensor_parallel_size": 2}, engine={"model":
    "smollm2-135m"})

It runs a tiny random Llama unless a model is named; `ExecutorOptions` says more. Which checks apply
shows when the executor is built: what it declares in `ExecutorCapabilities`, and whether it started
processes. Those that do not are skipped, and say why.
"""

from enginecore_conformance.checks import Check, checks_of
from enginecore_conformance.executors import (
    batches,
    deferring,
    describing,
    failing,
    invariance,
    life,
    requests,
    sampling,
)
from enginecore_conformance.executors.bench import ExecutorBench
from enginecore_conformance.executors.lending import WORDS, ExecutorOptions, Lender
from enginecore_conformance.kits import Kit, MakeBench
from enginecore_conformance.subject import Subject

__all__ = ["CHECKS", "KIT", "ExecutorOptions"]

CHECKS: tuple[Check[ExecutorBench], ...] = checks_of(
    describing, requests, invariance, sampling, batches, deferring, failing, life
)
"""All checks of executors. Those after which an executor is of no more use come last."""


def _benches(subject: Subject) -> MakeBench:
    lender = Lender(subject)
    return lambda check: ExecutorBench(lender, check.needs)


KIT = Kit(checks_for=lambda component: CHECKS, benches=_benches, options=ExecutorOptions, found_out=frozenset(WORDS))
