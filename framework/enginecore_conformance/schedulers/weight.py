"""Checks: light to import, and nothing kept of requests that have ended."""

from enginecore_conformance.checks import Violation, check
from enginecore_conformance.schedulers.bench import SchedulerBench
from enginecore_conformance.schedulers.run import SchedulerRun
from enginecore_conformance.schedulers.traffic import prompt
from enginecore_conformance.weight import count_objects, require_light_import

FEW, MANY = 24, 124
SLACK = 60
"""Objects more that 100 requests may leave."""


@check("scheduler")
def importing_it_is_light(bench: SchedulerBench) -> None:
    """Importing the plugin's module pulls in no model library and takes little time: every process
    of every engine does so, whatever it runs. What is heavy is imported by the factory.
    """
    require_light_import(bench.subject)


@check("scheduler")
def nothing_is_kept_of_the_ended(bench: SchedulerBench) -> None:
    """A scheduler that has served many requests, of the same few tenants and classes, holds no more
    objects than one that has served few.
    """
    run = bench.start(num_blocks=12, max_num_seqs=4, max_num_batched_tokens=32, max_model_len=48, step_time=1.0)
    _serve(run, 0, FEW)
    few = count_objects(run.harness.scheduler)
    _serve(run, FEW, MANY)
    if (grown := count_objects(run.harness.scheduler) - few) > SLACK:
        raise Violation(
            f"{MANY - FEW} requests that have ended left {grown} objects more in reach of the scheduler",
            f"at most {SLACK}: what is kept by request goes when the request ends",
        )


def _serve(run: SchedulerRun, start: int, end: int) -> None:
    for number in range(start, end):
        kind = number % 4
        run.add(f"r{number}", prompt([kind % 2, kind // 2], kind), 3 + kind, priority=kind, tenant="abc"[number % 3],
                hints={"predicted_output_tokens": float(kind), "class": float(kind)})  # fmt: skip
        run.step()
        if kind == 0:
            run.abort(f"r{number - 1}", f"r{number}")
    run.finish()
    run.reset()
