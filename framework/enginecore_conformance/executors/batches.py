"""Checks: several batches in flight."""

from enginecore_conformance.checks import Violation, check
from enginecore_conformance.executors.bench import ExecutorBench, Submitted
from enginecore_conformance.executors.planner import SUPPLY, Tracked

COUNT = 8


@check("executor", "batch_queue")
def as_many_batches_as_declared_may_be_in_flight(bench: ExecutorBench) -> None:
    """`max_concurrent_batches` steps may be submitted before the first is waited for, over and over, each with
    requests of its own; all are answered, with the tokens of requests that run alone.
    """
    prompts = [bench.prompt(("flight", number), 6 + 5 * number) for number in range(bench.depth)]
    requests = [bench.add_request(prompt) for prompt in prompts]
    for _ in range(COUNT):
        for submitted in [bench.submit([request]) for request in requests]:
            bench.settle(submitted)
    for number, request in enumerate(requests):
        bench.expect_as_alone(request, f"request {number}, with {bench.depth} steps in flight")


@check("executor", "batch_queue")
def results_come_in_order(bench: ExecutorBench) -> None:
    """When a step is done all steps before it are done, and each answer is that of its own step."""
    requests = [bench.add_request(bench.prompt(("order", number), 30 - 3 * number)) for number in range(bench.depth)]
    for _ in range(3):
        running = [bench.submit([request]) for request in requests]
        bench.wait(running[-1].future, "the last step in flight")
        late = [one.planned.plan.step for one in running if not one.future.done()]
        if late:
            raise Violation(f"step {running[-1].planned.plan.step} is done, and steps {late} are not", "steps in order")
        for submitted in running:
            bench.settle(submitted)


@check("executor", "batch_queue", "feeds_tokens")
def sampled_tokens_are_fed_to_the_next_step(bench: ExecutorBench) -> None:
    """A request may be scheduled again while the step that samples its last token is in flight, alone and beside
    others, behind a prompt in chunks too.
    """
    prompts = [bench.prompt(("fed", number), 13 + number) for number in range(2)]
    requests = [bench.add_request(prompt) for prompt in prompts]
    running = [bench.submit({requests[0]: 13}), bench.submit({requests[0]: 1, requests[1]: 6})]
    _keep_full(bench, running, requests)
    for number, request in enumerate(requests):
        bench.expect_as_alone(request, f"request {number}, scheduled ahead of its tokens", COUNT)


def _keep_full(bench: ExecutorBench, running: list[Submitted], requests: list[Tracked]) -> None:
    """Settle the oldest and submit another until all have enough, then settle the rest."""
    while any(len(request.output) < COUNT for request in requests):
        bench.settle(running.pop(0))
        while len(running) < bench.depth:
            running.append(bench.submit(requests))
    for submitted in running:
        bench.settle(submitted)


@check("executor", "batch_queue", "in_order")
def blocks_may_be_given_away_with_steps_in_flight(bench: ExecutorBench) -> None:
    """The plan that says that a request has ended may give its blocks to another while the last step of the first is
    in flight.
    """
    prompts = [bench.prompt(("fence", length), length) for length in (20, 30)]  # the second writes where the first does
    blocks = range(16, 16 + SUPPLY)
    first = bench.add_request(prompts[0], blocks=blocks)
    bench.generate(first, 3)
    last = bench.submit([first])
    bench.planner.finish(first)
    second = bench.add_request(prompts[1], blocks=blocks)
    running = bench.submit([second])
    bench.settle(last)
    bench.settle(running)
    bench.expect_as_alone(first, "a request whose blocks are given away behind its last step")
    bench.generate(second, COUNT)
    bench.expect_as_alone(second, "in blocks that another wrote to in the step before")
