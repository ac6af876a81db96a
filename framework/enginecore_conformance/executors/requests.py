"""Checks: requests that come, go, come back and are refused."""

from functools import partial

from enginecore_conformance.checks import Violation, check
from enginecore_conformance.executors.answers import check_rows
from enginecore_conformance.executors.bench import ExecutorBench
from enginecore_conformance.executors.lending import MAX_NUM_SEQS

COUNT = 6


@check("executor")
def steps_are_answered_for_those_they_sample(bench: ExecutorBench) -> None:
    """An answer names its step. Each request whose last known token is computed gets one token of
    the vocabulary, one in the middle of its prompt gets none, and no other is named.
    """
    first, second = bench.add_request(bench.prompt("row", 20)), bench.add_request(bench.prompt("rows", 3))
    bench.step({first: 7})
    bench.step({first: 7, second: 3})
    bench.step({second: 1, first: 5})
    bench.step({first: 1, second: 1})
    bench.step([second, first])


@check("executor")
def plans_without_tokens_are_answered(bench: ExecutorBench) -> None:
    """A plan that schedules nothing, and only says who has ended or was preempted, is obeyed and
    answered.
    """
    first, second = bench.add_request(bench.prompt("ends", 9)), bench.add_request(bench.prompt("preempted", 9))
    bench.step([first, second])
    bench.planner.finish(first)
    bench.step([])
    bench.planner.preempt(second)
    bench.step([])
    bench.step([second])


@check("executor")
def a_name_may_come_back(bench: ExecutorBench) -> None:
    """The plan that says that a request has ended may have another one of the same name."""
    request = bench.add_request(bench.prompt("first", 16))
    bench.generate(request, 3)
    bench.planner.finish(request)
    again = bench.add_request(bench.prompt("second", 12), request_id=request.request_id)
    bench.generate(again, COUNT)
    bench.expect_as_alone(again, "a request with the name of one that has just ended")


@check("executor")
def those_who_ended_are_forgotten(bench: ExecutorBench) -> None:
    """Ever new requests may come, `max_num_seqs` at a time, as long as those before have ended or
    were preempted.
    """
    prompt = bench.prompt("many", 4)
    for turn in range(4):
        requests = [bench.add_request(prompt) for _ in range(MAX_NUM_SEQS)]
        bench.generate_all(requests, 2)
        bench.planner.finish(*requests[1:])
        bench.planner.preempt(requests[0])
        bench.planner.finish(requests[0])
        for request in requests:
            bench.expect_as_alone(request, f"turn {turn + 1} of {MAX_NUM_SEQS} requests")


@check("executor", "content", "no_adapters")
def what_it_cannot_do_is_refused_for_its_request_alone(bench: ExecutorBench) -> None:
    """A request that asks for an adapter, which this executor does not declare, is named in
    `errors`; the others of the step are served, and that the request has ended may be said to an
    executor that never took it.
    """
    prompt = bench.prompt("refused", 10)
    asking, other = bench.add_request(prompt, adapter="lora"), bench.add_request(prompt)
    planned = bench.planner.plan_step({asking: 10, other: 10})
    output = bench.execute(planned.plan)
    if output is None:
        output = bench.wait(bench.executor.sample_tokens(planned.plan.step, None), "sample_tokens")
    if list(output.errors) != [asking.request_id] or not output.errors[asking.request_id]:
        raise Violation(f"errors {output.errors}", f"a sentence for {asking.request_id!r}, and for no other")
    planned.sampled.remove(asking)
    check_rows(planned, output, bench.executor.model_info.vocab_size)
    bench.planner.settle(planned, output)
    bench.planner.finish(asking)
    bench.generate(other, COUNT)
    bench.expect_as_alone(other, "beside a request that was refused")


@check("executor")
def a_step_is_sampled_once(bench: ExecutorBench) -> None:
    """`sample_tokens` for a step that was sampled, or never submitted, is an error, and the
    executor goes on.
    """
    request = bench.add_request(bench.prompt("once", 5))
    done = bench.step([request]).step
    for step in (done, 1 << 40):
        bench.error_of(f"sample_tokens({step})", partial(_sample, bench, step))
    bench.step([request])


def _sample(bench: ExecutorBench, step: int) -> object:
    return bench.wait(bench.executor.sample_tokens(step, None), f"sample_tokens({step})")


@check("executor")
def unknown_methods_are_named(bench: ExecutorBench) -> None:
    """`collective_rpc` with a method that is not there is an AttributeError that names it, and the
    executor goes on.
    """
    request = bench.add_request(bench.prompt("rpc", 5))
    bench.step([request])
    error = bench.error_of("collective_rpc('no_such_method')", lambda: bench.executor.collective_rpc("no_such_method"))
    if not isinstance(error, AttributeError) or "no_such_method" not in str(error):
        raise Violation(f"{type(error).__name__}: {error}", "AttributeError with the name of the method")
    bench.step([request])
