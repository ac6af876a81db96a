"""Checks: a scheduler does what it declares."""

from collections.abc import Sequence

from enginecore.interfaces import RequestView, SchedulerView, VictimChoice
from enginecore_conformance.checks import Violation, check
from enginecore_conformance.schedulers.bench import SchedulerBench
from enginecore_conformance.schedulers.traffic import busy_moves, prompt


@check("scheduler", "prefix_caching")
def prefix_hits_are_used(bench: SchedulerBench) -> None:
    """A scheduler that declares prefix_caching looks a prompt up before it computes it, and
    computes only the rest.
    """
    run = bench.start(num_blocks=40, max_num_seqs=4, max_num_batched_tokens=64)
    for number in range(3):
        run.add(f"r{number}", prompt([0, 1, 1], 1), 2)
        run.finish()
    found = [run.harness.transcript[f"r{number}"].num_cached_tokens for number in range(3)]
    if found != [0, 12, 12]:
        raise Violation(
            f"a prompt of 13 tokens, sent three times in turn, found {found} tokens cached",
            "0, then 12 (three blocks of 4)",
        )


@check("scheduler", "chunked_prefill")
def long_prompts_are_split(bench: SchedulerBench) -> None:
    """A scheduler that declares chunked_prefill computes a prompt above max_num_batched_tokens in
    several steps.
    """
    run = bench.start(num_blocks=40, max_num_seqs=4, max_num_batched_tokens=8)
    run.add("r0", prompt([0, 1, 0, 0, 1], 3), 2)
    run.finish()
    pieces = [plan.num_scheduled_tokens.get("r0", 0) for plan in run.harness.plans]
    if sum(pieces) != 24:
        raise Violation(f"a prompt of 23 tokens and an output of 2 were computed as {pieces}", "24 tokens in all")


@check("scheduler", "batch_queue")
def batches_overlap(bench: SchedulerBench) -> None:
    """A scheduler that declares batch_queue has something for the next step before the one before
    it has returned, with an executor that feeds tokens and with one that does not.
    """
    for feeds_tokens in (True, False):
        run = bench.start(
            num_blocks=60, max_num_seqs=4, max_num_batched_tokens=64, depth=2, feeds_tokens=feeds_tokens, step_time=1.0
        )
        for number in range(4):
            run.add(f"r{number}", prompt([number % 2], number), 8)
        run.finish()
        if run.harness.max_in_flight < 2:
            raise Violation(
                f"of four requests that run, at depth 2 and with feeds_tokens = {feeds_tokens}, no two steps were ever "
                "in flight",
                "as many steps in flight as the executor takes, where there is work for them",
            )


class _Recorder(VictimChoice):
    """Names the request of the best rank, which no other victim choice names."""

    def __init__(self) -> None:
        self.named: list[str] = []

    def choose(
        self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView, /
    ) -> RequestView | None:
        self.named.append(candidates[0].request_id)
        return candidates[0]


@check("scheduler", "victim")
def the_victim_component_decides(bench: SchedulerBench) -> None:
    """A scheduler that declares victim asks the victim component of its context who gives way, and
    takes its word.
    """
    named: list[str] = []
    for seed in range(4):
        recorder = _Recorder()
        run = bench.start(
            bench.parts.with_victim(recorder),
            num_blocks=10,
            max_num_seqs=4,
            max_num_batched_tokens=24,
            max_model_len=48,
        )
        for move in busy_moves(seed, 8, cancels=0.0):
            getattr(run, move.method)(*move.args, **move.kwargs)
        run.finish()
        preempted = [request_id for plan in run.harness.plans for request_id in plan.preempted_ids]
        if spared := set(recorder.named) - set(preempted):
            raise Violation(
                f"it named {sorted(spared)}, and {preempted} lost their blocks", "the request that it names loses them"
            )
        named += recorder.named
    if not named:
        raise Violation(
            "32 requests in a pool of 10 blocks, and it was never asked", "it is asked whenever one gives way"
        )
