"""Checks: bounds on waiting and thrashing, and requests that just fit."""

from enginecore.messages import FinishReason
from enginecore_conformance.checks import Violation, check
from enginecore_conformance.schedulers.bench import SchedulerBench
from enginecore_conformance.schedulers.run import SchedulerRun
from enginecore_conformance.schedulers.traffic import prompt

STREAM = 400
"""Requests, one a step, that come after one that must not starve behind them."""
MOST_PREEMPTIONS = 6
"""Of two long prompts that do not fit side by side."""


@check("scheduler")
def impossible_requests_are_refused(bench: SchedulerBench) -> None:
    """A prompt that the whole KV cache cannot hold ends at once by ERROR, with a text that says how
    many tokens that are or how many fit. One that just fits runs, and no request behind either
    waits for ever.
    """
    run = bench.start(num_blocks=4, max_num_seqs=2, max_num_batched_tokens=64, max_model_len=64)
    run.add("fits", prompt([0, 1, 0, 1], 0), 4)
    run.add("too long", prompt([0, 1, 0, 1], 1), 4)
    run.add("behind", prompt([1], 1), 2)
    run.submit()
    run.finish()
    terminal = run.harness.transcript["too long"].terminal
    if terminal is None or terminal.finish_reason is not FinishReason.ERROR:
        raise Violation(f"17 tokens for a KV cache of 16 ended with {terminal}", "reason ERROR")
    if not any(number in (terminal.error or "") for number in ("16", "17")):
        raise Violation(f"17 tokens for a KV cache of 16 were refused with {terminal.error!r}", "it says 16 or 17")
    bench.require_kept("impossible_requests_are_refused")


@check("scheduler")
def plain_requests_are_served(bench: SchedulerBench) -> None:
    """Short requests that nothing is special about, in a roomy KV cache, end with all their tokens.
    A scheduler that refuses every request keeps all other rules, and serves none.
    """
    run = bench.start(num_blocks=40, max_num_seqs=4, max_num_batched_tokens=64)
    for number in range(3):
        run.add(f"r{number}", prompt([number % 2], number), 4)
    run.finish()
    for story in run.harness.transcript.stories:
        if story.finish_reason is not FinishReason.LENGTH:
            why = story.terminal.error if story.terminal else None
            raise Violation(
                f"{story.request.request_id!r} ended with {len(story.token_ids)} of 4 tokens: {why}",
                "reason LENGTH, and 4 tokens",
            )


@check("scheduler")
def lone_requests_may_fill_the_pool(bench: SchedulerBench) -> None:
    """A request that outgrows the KV cache while it runs, with no other to give way, ends by LENGTH
    with all tokens that fit; the next one runs.
    """
    for depth in (1, 2) if "batch_queue" in bench.capabilities else (1,):
        run = bench.start(num_blocks=4, max_num_seqs=3, max_num_batched_tokens=64, max_model_len=64, depth=depth,
                          feeds_tokens=depth > 1)  # fmt: skip
        run.add("grows", prompt([0, 1, 0], 2), 40)
        run.finish(max_steps=100)
        run.add("next", prompt([1], 1), 2)
        run.finish(max_steps=100)


@check("scheduler")
def long_prompts_do_not_thrash(bench: SchedulerBench) -> None:
    """Two prompts that do not fit side by side do not evict each other again and again."""
    run = bench.start(
        num_blocks=20, max_num_seqs=4, max_num_batched_tokens=16, max_model_len=80, enable_prefix_caching=False
    )
    for number in range(2):
        run.add(f"r{number}", prompt([0, 1] * 7, 0), 12)
    run.finish()
    preemptions = run.harness.scheduler.get_stats().num_preemptions
    if preemptions > MOST_PREEMPTIONS:
        raise Violation(
            f"two prompts of 56 tokens in a pool for 80 took {preemptions} preemptions",
            f"at most {MOST_PREEMPTIONS}: who is admitted has room for its whole prompt",
        )


@check("scheduler")
def wait_is_bounded(bench: SchedulerBench) -> None:
    """A request that nothing speaks for, neither priority, deadline, cache nor length, is served
    although a better one arrives in every step. A policy that starves on purpose says so by opting
    out.
    """
    run = bench.start(num_blocks=60, max_num_seqs=2, max_num_batched_tokens=64, max_model_len=96, step_time=1.0)
    run.add("hot", prompt([0, 0, 0], 1), 1)
    run.finish()
    run.add("s0", prompt([0, 0, 0], 1), 2, priority=-1, tenant="s0", deadline=1.0)
    run.step()
    run.add("cold", prompt([1, 0, 1, 1, 0, 1], 3), 20, priority=1, tenant="cold")
    for number in range(1, STREAM):
        hints = {"predicted_output_tokens": 2.0}
        run.add(f"s{number}", prompt([0, 0, 0], 1), 2, priority=-1, tenant=f"s{number % 5}",
                deadline=run.harness.clock.now() + 1.0, hints=hints)  # fmt: skip
        run.step()
        if not run.harness.transcript["cold"].is_open:
            return
    _explain(run)


def _explain(run: SchedulerRun) -> None:
    tokens = len(run.harness.transcript["cold"].token_ids)
    served = sum(not story.is_open for story in run.harness.transcript.stories) - 1
    raise Violation(
        f"it has {tokens} of 20 tokens after {STREAM} steps of a second each, in which {served} that came later were "
        "served",
        "waiting has a bound, by ageing say",
    )
