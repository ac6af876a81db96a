"""Checks: a scheduler is light to import, and keeps nothing of requests that have ended."""

import gc
import json
import os
import subprocess
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from enginecore.conformance.checks import Violation, check
from enginecore.conformance.schedulers.bench import SchedulerBench
from enginecore.conformance.schedulers.run import SchedulerRun
from enginecore.conformance.schedulers.traffic import prompt

HEAVY = ("torch", "transformers", "triton", "tensorflow", "jax", "vllm", "sklearn", "pandas", "matplotlib")
IMPORT_TIME = 1.5
"""Seconds of processor time that a plugin may take, once the toolkit is imported."""
FEW, MANY = 24, 124
SLACK = 60
"""Objects more that 100 requests may leave."""

_IMPORT = """
import json, sys, time
import enginecore.plugin, enginecore.scheduling, enginecore.kv_cache
started = time.process_time()
__import__(sys.argv[1])
print(json.dumps([time.process_time() - started, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


@check("scheduler")
def importing_it_is_light(bench: SchedulerBench) -> None:
    """Importing the plugin's module pulls in no model library and takes little time: every process of every engine
    does so, whatever it runs. What is heavy is imported by the factory. (One that has no module of its own is not
    looked at.)
    """
    module = bench.subject.module
    if module is None:
        return
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT, module],
        env=environment, capture_output=True, text=True, timeout=bench.subject.options.time_limit,
    )  # fmt: skip
    if done.returncode:
        raise Violation(f"importing {module} fails: {done.stderr[-2000:]}", "it can be imported")
    seconds, modules = json.loads(done.stdout)
    if heavy := [name for name in HEAVY if name in modules]:
        raise Violation(f"importing {module} imports {', '.join(heavy)}", "the factory imports what is heavy")
    if seconds > IMPORT_TIME:
        raise Violation(f"importing {module} took {seconds:.1f} s", f"less than {IMPORT_TIME} s")


@check("scheduler")
def nothing_is_kept_of_the_ended(bench: SchedulerBench) -> None:
    """A scheduler that has served many requests, of the same few tenants and classes, holds no more objects than one
    that has served few.
    """
    run = bench.start(num_blocks=12, max_num_seqs=4, max_num_batched_tokens=32, max_model_len=48, step_time=1.0)
    _serve(run, 0, FEW)
    few = _count(run.harness.scheduler)
    _serve(run, FEW, MANY)
    if (grown := _count(run.harness.scheduler) - few) > SLACK:
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


def _count(scheduler: Any) -> int:
    """Objects in reach, without what all objects reach."""
    gc.collect()
    seen: set[int] = set()
    queue = [scheduler]
    while queue:
        found = queue.pop()
        if id(found) in seen or isinstance(found, type | ModuleType | FunctionType | BuiltinFunctionType):
            continue
        seen.add(id(found))
        queue += gc.get_referents(found)
    return len(seen)
