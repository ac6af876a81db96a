"""Checks: steps whose plan sets `defer_sampling`, sampled when they are asked to be."""

from enginecore_conformance.checks import NotApplicable, Violation, check
from enginecore_conformance.executors.bench import ExecutorBench, Submitted
from enginecore_conformance.executors.planner import PROBED, SUPPLY, Tracked
from enginecore_conformance.executors.sampling import seeded

COUNT = 6
SAMPLES_AT_ONCE = "it samples every step at once"


def defer(bench: ExecutorBench, requests: list[Tracked]) -> Submitted:
    """A step of these requests that is sampled later.

    Raises:
        NotApplicable: the executor does not know of `defer_sampling`.
    """
    submitted = bench.submit(requests, defer_sampling=True)
    if bench.wait(submitted.future, f"step {submitted.planned.plan.step}") is not None:
        raise NotApplicable(SAMPLES_AT_ONCE)
    return submitted


@check("executor", "content")
def deferred_steps_are_sampled_when_asked(bench: ExecutorBench) -> None:
    """A step whose plan sets `defer_sampling` answers None, and `sample_tokens` gives its output: of prompts, chunks
    and decodes, with the same tokens and log-probabilities as at once.
    """
    prompts = [bench.prompt(("deferred", number), 9 + 8 * number) for number in range(2)]
    params = [PROBED, seeded(5, temperature=2.0, top_p=0.9)]
    requests = [bench.add_request(prompt, how) for prompt, how in zip(prompts, params, strict=True)]
    bench.settle(bench.submit({requests[1]: 7}, defer_sampling=True))
    while any(len(request.output) < COUNT for request in requests):
        bench.settle(defer(bench, requests))
    for number, request in enumerate(requests):
        bench.expect_as_alone(request, f"request {number}, sampled apart from its forward pass")


@check("executor")
def plans_without_tokens_are_answered_at_once(bench: ExecutorBench) -> None:
    """A plan that schedules no tokens is never answered by None, whatever it says of sampling."""
    request = bench.add_request(bench.prompt("ended", 5))
    bench.step([request])
    bench.planner.finish(request)
    submitted = bench.submit([], defer_sampling=True)
    output = bench.wait(submitted.future, f"step {submitted.planned.plan.step}")
    if output is None:
        raise Violation(
            f"step {submitted.planned.plan.step}, which names a finished request and schedules nothing, gave None",
            "an output without rows",
        )
    if output.request_ids:
        raise Violation(f"a step without tokens gave rows of {output.request_ids}", "an output without rows")


@check("executor")
def deferred_steps_mix_with_others(bench: ExecutorBench) -> None:
    """Deferred steps and others follow one another, as many in flight as declared, and change no token. An executor
    that feeds tokens is asked to sample a step before it is given the next.
    """
    feeds = bench.executor.capabilities.feeds_tokens
    requests = [bench.add_request(bench.prompt(("mixed", number), 6 + 5 * number)) for number in range(bench.depth)]
    running: list[Submitted] = []
    for turn in range(COUNT * bench.depth):
        if len(running) == bench.depth:
            bench.settle(running.pop(0))
        work = requests if feeds else [requests[turn % bench.depth]]
        submitted = bench.submit(work, defer_sampling=turn % 3 != 1)
        bench.wait(submitted.future, f"step {submitted.planned.plan.step}")
        running.append(bench.ask_to_sample(submitted) if feeds else submitted)
    for submitted in running:
        bench.settle(submitted)
    for number, request in enumerate(requests):
        bench.expect_as_alone(request, f"request {number}, of steps some of which are sampled later")


@check("executor", "batch_queue", "content", "in_order", "waits_for_tokens")
def what_is_gone_is_sampled_all_the_same(bench: ExecutorBench) -> None:
    """Between the forward pass of a step and its sampling the next plan may say that its requests have ended or are
    preempted, and give their blocks to another: their tokens are those of their own context.
    """
    blocks = range(16, 16 + 2 * SUPPLY)
    ended = bench.add_request(bench.prompt("ends unsampled", 20), seeded(3, temperature=2.0), blocks=blocks[:SUPPLY])
    preempted = bench.add_request(bench.prompt("preempted unsampled", 13), PROBED, blocks=blocks[SUPPLY:])
    bench.generate_all([ended, preempted], 2)
    last = defer(bench, [ended, preempted])
    bench.planner.finish(ended)
    bench.planner.preempt(preempted)
    heirs = [
        bench.add_request(bench.prompt(("heir", n), 30 + n), blocks=blocks[n * SUPPLY :][:SUPPLY]) for n in range(2)
    ]
    running = bench.submit(heirs)
    bench.wait(running.future, "the step after one that waits to be sampled")
    bench.settle(last)
    bench.settle(running)
    bench.expect_as_alone(ended, "a request that ended between forward pass and sampling")
    bench.generate(preempted, COUNT)
    bench.expect_as_alone(preempted, "a request that was preempted between forward pass and sampling")
    bench.generate_all(heirs, COUNT)
    for heir in heirs:
        bench.expect_as_alone(heir, "in blocks that were taken from a step that was not sampled yet")


@check("executor", "batch_queue", "content", "waits_for_tokens")
def an_id_may_be_taken_again_before_it_is_sampled(bench: ExecutorBench) -> None:
    """A request that ended between forward pass and sampling may leave its id to another: each gets its own token."""
    first = bench.add_request(bench.prompt("first of this name", 12), seeded(11, temperature=2.0))
    bench.generate(first, 2)
    last = defer(bench, [first])
    bench.planner.finish(first)
    second = bench.add_request(bench.prompt("second of this name", 21), seeded(12), request_id=first.request_id)
    running = bench.submit([second])
    bench.wait(running.future, "the step after one that waits to be sampled")
    bench.settle(last)
    bench.settle(running)
    bench.generate(second, COUNT)
    bench.expect_as_alone(first, "a request whose id was taken again before its last token was sampled")
    bench.expect_as_alone(second, "a request that took the id of one that was not sampled yet")
