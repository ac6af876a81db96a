"""Checks: the same traffic gives the same plans."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence

import msgspec

from enginecore.messages import SchedulerOutput
from enginecore_conformance.checks import Violation, check
from enginecore_conformance.schedulers.bench import SchedulerBench
from enginecore_conformance.schedulers.run import SchedulerRun
from enginecore_conformance.schedulers.traffic import MAX_MODEL_LEN, busy_moves
from enginecore_conformance.trace import Move, Trace

RIGHT = "the same plans, step by step: nothing depends on chance, on real time or on what ran before"


def _trace(bench: SchedulerBench, seed: int) -> Trace:
    conditions = {
        "num_blocks": 11, "max_num_seqs": 4, "max_model_len": MAX_MODEL_LEN, "step_time": 1.0,
        "max_num_batched_tokens": 24,
    }  # fmt: skip
    return Trace(conditions, busy_moves(seed, 14))


def _play(run: SchedulerRun, moves: Iterable[Move]) -> Sequence[SchedulerOutput]:
    for move in moves:
        getattr(run, move.method)(*move.args, **move.kwargs)
    run.finish()
    return run.harness.plans


def _expect_same(first: Sequence[SchedulerOutput], again: Sequence[SchedulerOutput], when: str) -> None:
    for one, other in zip(first, again, strict=False):
        if one != other:
            raise Violation(f"{when}, the plan was\n  {one}\nand then\n  {other}", RIGHT)
    if len(first) != len(again):
        raise Violation(f"{when}, there were {len(first)} steps and then {len(again)}", RIGHT)


@check("scheduler")
def same_arrivals_give_the_same_plans(bench: SchedulerBench) -> None:
    """The same requests at the same times on the engine's clock give the same plans."""
    for seed in (1, 2):
        trace = _trace(bench, seed)
        first, again = (_play(bench.start(**trace.conditions), trace.moves) for _ in range(2))
        _expect_same(first, again, f"of two runs of the same traffic (number {seed})")


@check("scheduler")
def engines_share_nothing(bench: SchedulerBench) -> None:
    """Two engines in one process plan as each would alone: an A/B comparison needs that."""
    traces = [_trace(bench, seed) for seed in (3, 4)]
    alone = [_play(bench.start(**trace.conditions), trace.moves) for trace in traces]
    runs = [bench.start(**trace.conditions) for trace in traces]
    for at in range(max(len(trace.moves) for trace in traces)):
        for run, trace in zip(runs, traces, strict=True):
            for move in trace.moves[at : at + 1]:
                getattr(run, move.method)(*move.args, **move.kwargs)
    for number, run in enumerate(runs):
        run.finish()
        _expect_same(alone[number], run.harness.plans, "of an engine alone, and of the same one beside another")


@check("scheduler")
def processes_plan_alike(bench: SchedulerBench) -> None:
    """Plans do not depend on the process's hash seed: no order comes from a set of texts. A
    component that no other process can import is not looked at.
    """
    if bench.subject.reference.startswith(f"{bench.subject.component.kind}:") and not bench.subject.is_installed:
        return
    payload = json.dumps(
        {"reference": bench.subject.reference, "options": dict(bench.subject.options.for_run)}, default=str
    )
    code = "from enginecore_conformance.schedulers.repetition import main; main()"
    children = []
    for seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        children.append(
            subprocess.Popen(
                [sys.executable, "-c", code, payload],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    printed = [child.communicate(timeout=bench.subject.options.time_limit) for child in children]
    for child, (_, errors) in zip(children, printed, strict=True):
        if child.returncode:
            raise Violation(f"a run in another process failed: {errors[-2000:]}", "it runs there as here")
    if printed[0][0] != printed[1][0]:
        raise Violation("with PYTHONHASHSEED=0 and 1 the plans of the same traffic differ", RIGHT)


def main() -> None:
    """Entry point of another process: print a digest of all plans."""
    from enginecore_conformance.subject import Options, Subject

    payload = json.loads(sys.argv[1])
    bench = SchedulerBench(Subject.find(payload["reference"], Options(**payload["options"])))
    digest = hashlib.sha256()
    for seed in (1, 2, 5):
        trace = _trace(bench, seed)
        for plan in _play(bench.start(**trace.conditions), trace.moves):
            digest.update(msgspec.msgpack.encode(plan))
    sys.stdout.write(digest.hexdigest())
