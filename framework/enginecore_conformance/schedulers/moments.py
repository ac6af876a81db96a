"""Checks: clocks, counters, and waiting while memory is short."""

from enginecore_conformance.checks import Violation, check
from enginecore_conformance.schedulers.bench import SchedulerBench
from enginecore_conformance.schedulers.traffic import MAX_MODEL_LEN, busy_moves, prompt

STREAM = 250
"""Light requests, one a step, that come after a heavy one."""


@check("scheduler")
def preemptions_are_counted(bench: SchedulerBench) -> None:
    """get_stats() counts each request that loses its blocks as one preemption, here those that a
    reset of the prefix cache takes them from.
    """
    run = bench.start(num_blocks=40, max_num_seqs=4, max_num_batched_tokens=64)
    for number in range(3):
        run.add(f"r{number}", prompt([number % 2, 1], number), 6)
    run.step()
    before = run.harness.scheduler.get_stats()
    run.reset(running=True)
    counted = run.harness.scheduler.get_stats().num_preemptions - before.num_preemptions
    if counted != before.num_running:
        raise Violation(
            f"{before.num_running} running requests lost their blocks, and num_preemptions grew by {counted}",
            f"it grows by {before.num_running}",
        )
    run.finish()


@check("scheduler")
def real_time_does_not_count(bench: SchedulerBench) -> None:
    """The engine's clock is the only one: two runs of the same traffic in virtual time end at the
    same moment of it, however long each takes. A wake_time made of another clock shows here.
    """
    ends = []
    for _ in range(2):
        run = bench.start(
            num_blocks=11, max_num_seqs=4, max_num_batched_tokens=24, max_model_len=MAX_MODEL_LEN, step_time=1.0
        )
        for move in busy_moves(6, 8):
            getattr(run, move.method)(*move.args, **move.kwargs)
        run.finish()
        ends.append(run.harness.clock.now())
    if ends[0] != ends[1]:
        raise Violation(f"two runs of the same traffic ended at {ends[0]} and at {ends[1]}", "at the same time")


@check("scheduler")
def light_requests_do_not_starve_a_heavy_one(bench: SchedulerBench) -> None:
    """A prompt that needs most of the KV cache is served although light ones, which would fit
    beside those that run, come in every step.
    """
    run = bench.start(num_blocks=12, max_num_seqs=4, max_num_batched_tokens=64, max_model_len=48, step_time=1.0)
    for number in range(STREAM):
        run.add(f"light{number}", prompt([0], 2), 8)
        run.step()
        if number == 3:
            run.add("heavy", prompt([1, 0, 1, 1, 0, 1, 0, 1], 3), 8)
        if number > 3 and not run.harness.transcript["heavy"].is_open:
            return
    raise Violation(
        f"a prompt of 35 tokens waits while {STREAM - 4} of 6 tokens, one a step, come after it in a pool for 48",
        "it has its turn: no request overtakes it for ever",
    )
