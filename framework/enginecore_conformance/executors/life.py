"""Checks: the end of an executor, and what it leaves."""

from enginecore_conformance.checks import Violation, check
from enginecore_conformance.executors.bench import ExecutorBench
from enginecore_conformance.executors.failing import expect_dead
from enginecore_conformance.executors.planner import ManualPlanner
from enginecore_conformance.transports.leftovers import Inventory, expect_nothing_more


@check("executor")
def closing_twice_does_nothing(bench: ExecutorBench) -> None:
    """`shutdown` may be called again, from any thread, and is no failure."""
    executor = bench.spoil()
    bench.step([bench.add_request(bench.prompt("twice", 7))])
    executor.shutdown()
    executor.shutdown()
    bench.call("shutdown() on another thread", executor.shutdown)
    if bench.failures:
        raise Violation(f"failure callbacks were called with {bench.failures[0]!r}", "a shutdown is no failure")


@check("executor")
def after_shutdown_every_call_says_so(bench: ExecutorBench) -> None:
    """After `shutdown` each of `check_health`, `execute_model` and `collective_rpc` raises
    EngineDeadError.
    """
    executor = bench.spoil()
    bench.step([bench.add_request(bench.prompt("after", 7))])
    executor.shutdown()
    expect_dead(bench)


@check("executor")
def nothing_is_left_after_shutdown(bench: ExecutorBench) -> None:
    """After `shutdown`, also with steps in flight, no thread, no process and no file descriptor of
    the executor is left.
    """
    bench.spoil()  # no check may use it after this one
    bench.step([bench.add_request(bench.prompt("before", 7))])  # what is made once per process is no leak
    before = Inventory()
    other = bench.lender.build()
    other.initialize()
    planner = ManualPlanner(other)
    for number in range(bench.depth):
        request = planner.add_request(bench.prompt(number, 7))
        other.executor.execute_model(planner.plan_step({request: 7}).plan)
    bench.call("shutdown() with steps in flight", other.executor.shutdown)
    expect_nothing_more(bench, before)
