"""Checks: steps that fail, and workers that die."""

import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import psutil

from enginecore.errors import EngineDeadError
from enginecore.messages import SchedulerOutput
from enginecore_conformance.checks import NotApplicable, Violation, check
from enginecore_conformance.executors.bench import ExecutorBench

COUNT = 4
UNKNOWN = "unknown"


@check("executor")
def a_plan_that_is_wrong_fails_its_step(bench: ExecutorBench) -> None:
    """A plan that schedules a request that the executor does not know fails its step, soon;
    no answer, and no hanging.
    """
    bench.spoil()
    request = bench.add_request(bench.prompt("good", 7))
    bench.step([request])
    bench.error_of("a plan with an unknown request", lambda: _execute_wrong_plan(bench))


@check("executor")
def after_a_failed_step_it_is_dead_or_well(bench: ExecutorBench) -> None:
    """After a step that failed, either `check_health` and `execute_model` raise EngineDeadError and
    failure callbacks were called, or none was, and new requests get the right tokens.
    """
    bench.spoil()
    prompt = bench.prompt("after", 9)
    bench.alone(prompt, COUNT)  # before anything goes wrong
    bench.error_of("a plan with an unknown request", lambda: _execute_wrong_plan(bench))
    if _is_dead(bench):
        expect_dead(bench)
        return
    if bench.failures:
        raise Violation("check_health returns, but a failure was reported", "both, or neither")
    request = bench.add_request(prompt)
    bench.generate(request, COUNT)
    bench.expect_as_alone(request, "after a step that failed")


@check("executor")
def a_failure_is_told_once_and_to_late_comers_at_once(bench: ExecutorBench) -> None:
    """An executor that cannot go on calls each failure callback once, and one that is registered
    later at once.
    """
    bench.spoil()
    bench.step([bench.add_request(bench.prompt("told", 7))])
    _make_fail(bench)
    if not bench.until(lambda: bool(bench.failures)):
        raise Violation("check_health raises, but the failure callback was not called", "it is called")
    late: list[BaseException] = []
    bench.executor.register_failure_callback(late.append)
    if len(late) != 1:
        raise Violation(f"a callback that came after the failure was called {len(late)} times", "once, at once")
    bench.call("shutdown() after a failure", bench.executor.shutdown)
    if len(bench.failures) != 1 or len(late) != 1:
        raise Violation(
            f"callbacks were called {len(bench.failures)} and {len(late)} times until shutdown() had returned",
            "once each",
        )


@check("executor", "workers")
def the_death_of_a_worker_is_noticed(bench: ExecutorBench) -> None:
    """When a worker is killed while nothing is to be done, failure callbacks are called soon, every
    later call raises EngineDeadError, and the other workers end.
    """
    bench.spoil()
    bench.step([bench.add_request(bench.prompt("idle", 7))])
    os.kill(bench.standing.workers[-1], signal.SIGKILL)
    if not bench.until(lambda: bool(bench.failures)):
        raise Violation(f"no failure was reported within {bench.patience:g} s", "failure callbacks are called")
    expect_dead(bench)
    if not bench.until(lambda: not _alive(bench)):
        raise Violation(f"workers {_alive(bench)} are still there", "with one worker all end")


@check("executor", "workers")
def the_death_of_a_worker_fails_all_who_wait(bench: ExecutorBench) -> None:
    """When a worker is killed, a call that waits for a step, or in `collective_rpc`, gets an error
    soon.
    """
    bench.spoil()
    requests = [bench.add_request(bench.prompt(("waiting", number), 7)) for number in range(bench.depth)]
    bench.step([requests[0]])
    for pid in bench.standing.workers:  # so that no step can end
        os.kill(pid, signal.SIGSTOP)
    running = [bench.submit([request]) for request in requests]
    call = bench.start_call(bench.executor.collective_rpc, "no_such_method")
    os.kill(bench.standing.workers[0], signal.SIGKILL)
    for submitted in running:
        bench.error_of("a step of a worker that was killed", partial(bench.wait, submitted.future, "a step"))
    error = bench.error_of("collective_rpc", lambda: bench.finish(call, "collective_rpc"))
    if not isinstance(error, EngineDeadError):
        raise Violation(f"collective_rpc raises {type(error).__name__}: {error}", "EngineDeadError")
    expect_dead(bench)


def expect_dead(bench: ExecutorBench) -> None:
    """Each call says that the executor is dead."""
    plan = SchedulerOutput(step=next(bench.standing.steps), finished_ids=["request"])
    calls: dict[str, Callable[[], Any]] = {
        "check_health": bench.executor.check_health,
        "execute_model": lambda: bench.execute(plan),
        "collective_rpc": lambda: bench.executor.collective_rpc("no_such_method"),
    }
    for name, call in calls.items():
        error = bench.error_of(f"{name} of a dead executor", call)
        if not isinstance(error, EngineDeadError):
            raise Violation(f"{name} raises {type(error).__name__}: {error}", "EngineDeadError, which says why")


def _execute_wrong_plan(bench: ExecutorBench) -> Any:
    plan = SchedulerOutput(step=next(bench.standing.steps), num_scheduled_tokens={UNKNOWN: 1})
    output = bench.execute(plan)
    return bench.wait(bench.executor.sample_tokens(plan.step, None), "sample_tokens") if output is None else output


def _is_dead(bench: ExecutorBench) -> bool:
    try:
        bench.executor.check_health()
    except EngineDeadError:
        return True
    return False


def _make_fail(bench: ExecutorBench) -> None:
    """Kill a worker; without one, have a wrong plan executed.

    Raises:
        NotApplicable: that does not hurt it.
    """
    if bench.standing.workers:
        os.kill(bench.standing.workers[0], signal.SIGKILL)
        return
    bench.error_of("a plan with an unknown request", lambda: _execute_wrong_plan(bench))
    if not _is_dead(bench):
        raise NotApplicable("it has no workers, and goes on after a failed step: the kit cannot make it fail")


def _alive(bench: ExecutorBench) -> list[int]:
    found = []
    for pid in bench.standing.workers:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
        except psutil.NoSuchProcess:
            continue
    return found
