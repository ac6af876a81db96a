"""Checks: requests and outputs through a client and a transport are as without one."""

import msgspec

from enginecore.errors import EngineDeadError, InvalidRequestError, UtilityError
from enginecore.messages import EngineCoreRequest, FinishReason, SchedulerStats
from enginecore.request import Request
from enginecore.sampling import SamplingParams
from enginecore_conformance.checks import Violation, check
from enginecore_conformance.oracle.model import OracleModel
from enginecore_conformance.transports.client_bench import ClientBench, Talk, expect_error, reasons, request, requests
from enginecore_conformance.transports.leftovers import Inventory, expect_nothing_more
from enginecore_conformance.transports.telling import TELL, told

FULL_PARAMS = SamplingParams(
    temperature=0.25, top_p=0.5, top_k=7, seed=-5, max_tokens=9, min_tokens=3, stop=("end", "stop"),
    stop_token_ids=(200, 201), ignore_eos=True, include_stop_str_in_output=True, skip_special_tokens=False, logprobs=20,
)  # fmt: skip
FULL_REQUEST = EngineCoreRequest(
    request_id="full", prompt_token_ids=[1, 0, 255, 7], params=FULL_PARAMS, arrival_time=12.5, priority=-2.5,
    tenant="Zoë", deadline=99.25, cache_salt="salt", adapter="adapter", hints={"length": 3.5, "": -1e300},
    skip_prefix_cache=True,
)  # fmt: skip
"""No field has its default, but for those that are refused when they are set, and `detokenize`,
which `stop` needs.
"""
WRONG_CALLS: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("get_stat", ()), ("get_stats", (1,)), ("collective_rpc", ()), ("", ()), ("reset_prefix_cache", ("?",)),
)  # fmt: skip


@check("transport")
def tokens_are_those_of_the_model(bench: ClientBench) -> None:
    """Whatever is asked, each request gets exactly the tokens and the one terminal output that it
    gets without a transport; afterwards nothing is left of any, and the client says so.
    """
    talk = bench.start(num_kv_blocks=24, max_model_len=128)
    talk.add_requests(*requests(24))
    talk.run()
    talk.expect_rest()
    talk.add_requests(*requests(8, prefix="again-", seed=2))
    talk.run()


@check("transport")
def every_field_survives(bench: ClientBench) -> None:
    """Scheduler and worker see every field of a request and of its parameters as the front end set
    it.
    """
    talk = bench.start()
    model = OracleModel.of_engine(talk.client.info)
    talk.client.add_request(msgspec.structs.replace(FULL_REQUEST, request_id=f"{TELL}full"))
    output = talk.take_first()
    local = Request(FULL_REQUEST, FULL_PARAMS, arrival_number=0, arrival_time=12.5, max_model_len=model.max_model_len)
    local.client_index = talk.client.client_index  # which the engine core stamps
    if output.error != told(local):
        raise Violation(f"the scheduler was given {output.error}", told(local))
    talk.add_requests(FULL_REQUEST)
    talk.run()
    [new] = [new for trace in talk.history for new in trace.plan.new_requests]
    seen = (new.token_ids, new.params, new.cache_salt, new.adapter)
    right = (FULL_REQUEST.prompt_token_ids, FULL_PARAMS, FULL_REQUEST.cache_salt, FULL_REQUEST.adapter)
    if seen != right:
        raise Violation(f"the worker was given {seen}", f"{right}")


@check("transport")
def every_field_of_an_output_survives(bench: ClientBench) -> None:
    """The front end gets every field of an output as the engine core made it: tokens, reasons, the
    stop token, cached tokens, logprobs, the error of a request that failed alone.
    """
    talk = bench.start(oracle={"faults": [{"kind": "error", "request_id": "broken"}]})
    model = OracleModel.of_engine(talk.client.info)
    prompt = list(range(40))
    talk.add_requests(request("first", prompt=prompt))
    talk.run()
    params = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True, logprobs=20)
    stop = model.expected_tokens(prompt, params)[7]
    params = msgspec.structs.replace(params, stop_token_ids=(stop,))
    talk.add_requests(request("broken"), request("last", prompt=prompt, params=params))
    outputs = []
    while talk.transcript.open_ids:
        outputs += talk.take_outputs().outputs
    end, last = talk.transcript["broken"].terminal, talk.transcript["last"]
    if end is None or end.finish_reason is not FinishReason.ERROR or "broken" not in (end.error or ""):
        raise Violation(f"a request that failed ended by {end}", "reason ERROR, and the error's text")
    talk.transcript.check(model)
    logprobs = [one for output in outputs if output.request_id == "last" for one in output.logprobs or ()]
    right = [model.logprobs(token, params) for token in last.token_ids]
    if logprobs != right:
        raise Violation(f"logprobs {logprobs!r:.300}", f"{right!r:.300}")
    if last.num_cached_tokens != 32:
        raise Violation(f"{last.num_cached_tokens} of 40 prompt tokens are said to have been cached", "32")


@check("transport")
def aborted_requests_are_forgotten(bench: ClientBench) -> None:
    """Requests that are aborted, running or waiting, leave nothing in the engine core; to abort one
    that is unknown or has ended does nothing; others go on.
    """
    talk = bench.start(max_num_seqs=4, max_model_len=2048, oracle={"step_time": 0.005})
    talk.add_requests(*(request(f"long{number}", max_tokens=2000) for number in range(6)), *requests(6))
    while not talk.transcript["long0"].token_ids:
        talk.take_outputs()
    talk.abort("long0", "long5", "unknown")
    talk.abort("long0")
    talk.abort(*(f"long{number}" for number in range(1, 5)))
    talk.run()
    talk.abort("long0", "r0")
    talk.expect_rest()
    if ends := [output for output in talk.late if output.finish_reason is not None]:
        raise Violation(f"{ends[:3]} came after the abort", "no word of the end of a request that its front end ended")


@check("transport")
def refused_requests_are_answered(bench: ClientBench) -> None:
    """A request that cannot be run raises InvalidRequestError at its sender, or ends by reason
    ERROR with the reason, and no other request is affected.
    """
    talk = bench.start()
    wrong = {
        "empty": request("empty", prompt=()),
        "too long": request("too long", prompt=[1] * 600),
        "not in the vocabulary": request("not in the vocabulary", prompt=[256]),
        "not supported": request("not supported", data_parallel_rank=1),
        "without a seed": request("without a seed", params=SamplingParams(temperature=1)),
    }
    talk.add_requests(request("before"))
    refused = []
    for name, one in wrong.items():
        try:
            talk.client.add_request(one)
        except InvalidRequestError:
            refused.append(name)
        else:
            talk.transcript.begin(one)
    talk.add_requests(request("after"))
    talk.await_ends()
    for name in (name for name in wrong if name not in refused):
        end = talk.transcript[name].terminal
        if end is None or end.finish_reason is not FinishReason.ERROR or not end.error:
            raise Violation(f"a request that is {name} ended by {end}", "reason ERROR, and why")
    if [talk.transcript[name].finish_reason for name in ("before", "after")] != [FinishReason.LENGTH] * 2:
        raise Violation("requests before and after those that were refused did not end by LENGTH", "they do")
    talk.expect_rest()


@check("transport")
def utilities_return_values_and_errors(bench: ClientBench) -> None:
    """A control call returns its value as the type that it has, or raises: InvalidRequestError for
    a call that is wrong, UtilityError for one that failed, with the remote text. None of it
    disturbs requests that run.
    """
    talk = bench.start()
    call = talk.client.call_utility
    talk.add_requests(*requests(4))
    stats = call("get_stats")
    if type(stats) is not SchedulerStats or call("is_alive") is not True or call("check_health") is not None:
        raise Violation(f"get_stats gave {stats!r}, or is_alive not True, or check_health not None", "as declared")
    for name, args in (
        ("get_stat", ()),
        ("get_stats", (1,)),
        ("collective_rpc", ()),
        ("", ()),
        ("reset_prefix_cache", ("?",)),
    ):
        expect_error(InvalidRequestError, call, name, *args, what=f"utility {name}{args}")
    failed = expect_error(UtilityError, call, "collective_rpc", "no_such_method", what="a method that no worker has")
    if "no_such_method" not in str(failed):
        raise Violation(f"the failure arrives as {str(failed)!r}", "the text of the remote error")
    talk.run()
    talk.expect_rest()
    if call("reset_prefix_cache") is not True:
        raise Violation("reset_prefix_cache gave something else than True with nothing running", "True")


@check("transport")
def shutdown_ends_everything(bench: ClientBench) -> None:
    """`shutdown` returns soon, with or without requests, and may be called again. Requests that ran
    end by ABORT; `get_output` gives what came of them, then raises EngineDeadError, as every later
    call does.
    """
    talk = bench.start(shutdown_timeout=0.0, oracle={"step_time": 0.02})
    talk.add_requests(request("one", max_tokens=450), request("two", max_tokens=450))
    while not talk.transcript["one"].token_ids:
        talk.take_outputs()
    for _ in range(3):
        bench.call("shutdown()", talk.client.shutdown)
    try:
        while True:
            talk.take_outputs()
    except EngineDeadError:
        pass
    ends = [story.finish_reason for story in talk.transcript.stories]
    if ends != [FinishReason.ABORT] * 2:
        raise Violation(f"running requests ended by {ends}", "each by ABORT")
    _expect_dead(talk)


def _expect_dead(talk: Talk) -> None:
    for _ in range(2):
        expect_error(EngineDeadError, talk.client.add_request, request("late"), what="add_request() after the end")
        expect_error(EngineDeadError, talk.client.get_output, what="get_output() after the end")
        expect_error(EngineDeadError, talk.client.call_utility, "get_stats", what="call_utility() after the end")
        talk.client.abort_requests(["late", "one"])


@check("transport")
def shutdown_lets_requests_end(bench: ClientBench) -> None:
    """With a `shutdown_timeout`, requests that were sent before `shutdown` is called go on to their
    end.
    """
    talk = bench.start(shutdown_timeout=60.0, oracle={"step_time": 0.002})
    talk.add_requests(*(request(f"r{number}", max_tokens=60) for number in range(4)))
    bench.call("shutdown() of requests that take a tenth of a second", talk.client.shutdown)
    try:
        while True:
            talk.take_outputs()
    except EngineDeadError:
        pass
    talk.transcript.check(OracleModel.of_engine(talk.client.info))
    ends = [story.finish_reason for story in talk.transcript.stories]
    if ends != [FinishReason.LENGTH] * 4:
        raise Violation(f"requests that were sent before ended by {ends}", "each by LENGTH")


@check("transport")
def shutdown_leaves_nothing(bench: ClientBench) -> None:
    """After `shutdown` no process, thread or file descriptor of the engine is left."""
    before = Inventory()
    talk = bench.start()
    talk.add_requests(request("one"))
    talk.run()
    talk.client.shutdown()
    expect_nothing_more(bench, before)


@check("transport")
def a_step_that_fails_ends_the_engine(bench: ClientBench) -> None:
    """When a step fails, a call that waits, and every later one, raises EngineDeadError with the
    cause.
    """
    talk = bench.start(oracle={"faults": [{"kind": "fail", "step": 3}]})
    talk.add_requests(request("one"), request("two"))
    try:
        while not talk.take_outputs().idle:
            pass
    except EngineDeadError as error:
        if "the oracle was set to fail" not in reasons(error):
            raise Violation(f"it raised {reasons(error)}", "the cause is among the causes") from error
    else:
        raise Violation("a step failed, and all is said to be done", "EngineDeadError")
    _expect_dead(talk)
    bench.call("shutdown() of an engine that is dead", talk.client.shutdown)
