"""The engine core through its public door, on the oracle executor."""

import os
import threading
from concurrent.futures import Future
from typing import Any, cast

import pytest

from enginecore.clock import RealClock, VirtualClock
from enginecore.errors import ConfigurationError, EngineDeadError, InvalidRequestError, PluginError, StepError
from enginecore.interfaces import Scheduler
from enginecore.kinds import SCHEDULER
from enginecore.messages import EngineCoreRequest, FinishReason
from enginecore.plugin import Component
from enginecore.sampling import PoolingParams, SamplingParams
from enginecore.scheduling import (
    ContinuousBatchingScheduler,
    RequestView,
    SchedulerView,
    SchedulingPolicy,
    Split,
    policy_component,
)
from enginecore_conformance.oracle.executor import OracleExecutor
from enginecore_conformance.oracle.model import OracleModel
from enginecore_conformance.oracle.settings import OracleSettings
from enginecore_schedulers.fcfs import Fcfs
from tests.core.engines import make_core, request, run
from tests.core.stalling import Stalling


def test_one_terminal_output_per_request_and_it_is_the_last() -> None:
    core = make_core()
    for n in range(5):
        core.add_request(request(f"r{n}", prompt=3 + n))
    outputs = run(core)
    for n in range(5):
        mine = [output for output in outputs if output.request_id == f"r{n}"]
        assert [output.finish_reason for output in mine] == [None, None, None, FinishReason.LENGTH]


def test_outputs_go_to_their_client() -> None:
    core = make_core()
    for client in (0, 3):
        wire = request(f"r{client}", max_tokens=1)
        wire.client_index = client
        core.add_request(wire)
    outputs, ran = core.advance()
    assert ran
    assert {client: [o.request_id for o in due.outputs] for client, due in outputs.items()} == {0: ["r0"], 3: ["r3"]}


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        (request("r", prompt=0), "the prompt is empty"),
        (EngineCoreRequest(request_id="r", prompt_token_ids=[1, -1], params=request("x").params), "got -1 at index 1"),
        (
            EngineCoreRequest(request_id="r", prompt_token_ids=[10**6], params=request("x").params),
            "got 1000000 at index 0",
        ),
        (EngineCoreRequest(request_id="r", prompt_token_ids=[1], params=PoolingParams()), "pooling is not supported"),
        (
            EngineCoreRequest(request_id="r", prompt_token_ids=[1], params=request("x").params, data_parallel_rank=0),
            "data parallelism is not supported",
        ),
    ],
)
def test_what_can_never_run_is_refused_and_costs_nobody_else_anything(wire: EngineCoreRequest, message: str) -> None:
    core = make_core()
    core.add_request(request("good"))
    with pytest.raises(InvalidRequestError, match=message):
        core.add_request(wire)
    assert [output.request_id for output in run(core)] == ["good"] * 4


def test_a_failed_step_says_what_was_scheduled_but_no_prompt_and_the_engine_is_dead() -> None:
    core = make_core(oracle={"faults": [{"kind": "fail", "step": 2}]})
    core.add_request(request("first", prompt=7))
    core.add_request(request("second", prompt=9))
    core.advance()
    with pytest.raises(EngineDeadError) as raised:
        core.advance()
    error = raised.value.__cause__
    assert isinstance(error, StepError)
    assert "step 2 (2 tokens of 2 requests: 'first': 1, 'second': 1; 0 new, 0 finished, 0 preempted)" in str(error)
    for call in (core.advance, lambda: core.add_request(request("late")), lambda: core.call_utility("get_stats")):
        with pytest.raises(EngineDeadError) as again:
            call()
        assert again.value.__cause__ is error


def test_a_dead_executor_is_noticed_before_the_next_step() -> None:
    core = make_core(oracle={"faults": [{"kind": "die", "step": 1}]})
    core.add_request(request("r"))
    with pytest.raises(EngineDeadError):
        core.advance()
    with pytest.raises(EngineDeadError):
        core.add_request(request("late"))


def test_a_scheduler_that_stalls_is_a_loud_error() -> None:
    """Field case 33."""

    core = make_core(components=[policy_component("stalling", Stalling)], scheduler={"use": "stalling"})
    core.add_request(request("r"))
    with pytest.raises(EngineDeadError, match=r"no progress: scheduler 'stalling' .* 1 requests are unfinished"):
        core.advance()


def test_abort_takes_effect_before_the_next_output_and_says_nothing() -> None:
    core = make_core()
    core.add_request(request("gone", max_tokens=50))
    core.add_request(request("stays", max_tokens=3))
    core.advance()
    core.abort_requests(["gone", "never heard of"])
    core.abort_requests(["gone"])
    assert {output.request_id for output in run(core)} == {"stays"}
    assert core.call_utility("get_stats").num_free_blocks == core.info.num_blocks


def test_an_id_is_free_again_as_soon_as_it_was_aborted() -> None:
    core = make_core()
    core.add_request(request("r", prompt=6, max_tokens=9))
    core.advance()
    core.abort_requests(["r"])
    core.add_request(request("r", prompt=8, max_tokens=2))
    outputs = run(core)
    model = OracleModel(core.info.vocab_size, tuple(core.info.eos_token_ids), core.info.max_model_len)
    expected = model.expected_tokens(list(range(3, 11)), SamplingParams(temperature=0, max_tokens=2, ignore_eos=True))
    assert [token for output in outputs for token in output.new_token_ids] == list(expected)


def test_finish_all_gives_each_request_its_terminal_output() -> None:
    core = make_core()
    for n in range(3):
        core.add_request(request(f"r{n}"))
    core.advance()
    (due,) = core.finish_all(FinishReason.ABORT).values()
    assert [(output.request_id, output.finish_reason) for output in due.outputs] == [
        (f"r{n}", FinishReason.ABORT) for n in range(3)
    ]
    assert run(core) == []


# -- batch queue -----------------------------------------------------------------------------------------------------


def test_a_lone_request_has_two_decodes_in_flight_where_the_executor_feeds_tokens() -> None:
    clock = VirtualClock()
    core = make_core(oracle={"depth": 2, "feeds_tokens": True, "step_time": 1.0}, clock=clock)
    core.add_request(request("r", max_tokens=8))
    ended = 0.0
    while core.has_requests():
        for due in core.advance()[0].values():
            ended = due.timestamp
    assert ended == 8.0, "eight steps of a second, back to back"


def test_without_feeding_a_lone_request_waits_for_each_token_and_two_share_the_queue() -> None:
    clock = VirtualClock()
    core = make_core(oracle={"depth": 2, "feeds_tokens": False, "step_time": 1.0}, clock=clock)
    core.add_request(request("a", max_tokens=4))
    core.add_request(request("b", max_tokens=4))
    outputs = run(core)
    assert len(outputs) == 8
    assert core.call_utility("get_stats").num_preemptions == 0


# -- utilities -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("get_statz", (), "no utility 'get_statz'; there are check_health, collective_rpc, get_stats, is_alive, pause"),
        ("__init__", (), "no utility '__init__'"),
        ("call", ("get_stats",), "no utility 'call'"),
        ("os:system", ("true",), "no utility 'os:system'"),
        ("update_weights", (), "no utility 'update_weights'"),
        ("get_stats", (1,), "too many positional arguments"),
        ("collective_rpc", (), "missing a required argument: 'method'"),
    ],
)
def test_an_unknown_utility_or_a_wrong_argument_is_the_callers_error_alone(
    name: str, arguments: tuple[Any, ...], message: str
) -> None:
    """Field cases 46 and 138: weights cannot be exchanged behind the cache's back, and a name is no import path."""
    core = make_core()
    with pytest.raises(InvalidRequestError, match=message):
        core.call_utility(name, *arguments)
    core.add_request(request("r"))
    assert len(run(core)) == 4


def test_reset_prefix_cache_is_refused_while_blocks_are_held_unless_told_to_preempt() -> None:
    core = make_core()
    core.add_request(request("r", prompt=20, max_tokens=6))
    core.advance()
    assert core.call_utility("reset_prefix_cache") is False
    assert core.call_utility("get_stats").num_running == 1
    assert core.call_utility("reset_prefix_cache", True) is True
    stats = core.call_utility("get_stats")
    assert (stats.num_running, stats.num_waiting, stats.num_preemptions) == (0, 1, 1)
    assert len(run(core)) == 5


def test_shutdown_twice_is_shutdown_once() -> None:
    core = make_core()
    core.shutdown()
    core.shutdown()
    with pytest.raises(EngineDeadError, match="was shut down"):
        core.add_request(request("r"))


# -- distrust --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("arrival_time", float("nan"), r"arrival_time must be a number in \[-1e\+300, 1e\+300\], got nan"),
        ("priority", float("inf"), "priority must be a number in .* got inf"),
        ("deadline", float("-inf"), "deadline must be a number in .* got -inf"),
        ("hints", {"length": float("nan")}, r"hints\['length'\] must be a number in .* got nan"),
        ("client_index", -1, "client_index must be at least 0, got -1"),
        ("request_id", "a\ud800", "request_id must be text that UTF-8 can hold"),
        ("cache_salt", "\ud800", "cache_salt must be text that UTF-8 can hold"),
        ("adapter", "\udfff", "adapter must be text that UTF-8 can hold"),
        ("tenant", "\ud800", "tenant must be text that UTF-8 can hold"),
        ("hints", {"\ud800": 1.0}, "hints must be text that UTF-8 can hold"),
    ],
)
def test_numbers_that_would_break_the_order_of_everybody_are_refused(field: str, value: object, message: str) -> None:
    core = make_core()
    wire = request("r")
    setattr(wire, field, value)
    with pytest.raises(InvalidRequestError, match=message):
        core.add_request(wire)
    assert not core.has_requests()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"stop_token_ids": (10**6,), "min_tokens": 2}, r"stop_token_ids must be in \[0, .*; got 1000000 at index 0"),
        ({"seed": None, "temperature": 1.0}, "params.seed must be set by the front end"),
    ],
)
def test_parameters_that_a_front_end_should_have_settled_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        make_core().add_request(request("r", **params))


class HangingExecutor(OracleExecutor):
    """Its steps never end; from another thread it reports that it has failed."""

    def execute_model(self, scheduled: Any) -> Any:
        threading.Timer(0.01, self.report).start()
        return Future()

    def register_failure_callback(self, callback: Any) -> None:
        self.callback = callback

    def report(self) -> None:
        self.callback(RuntimeError("rank 3 is gone"))


class RaisingExecutor(OracleExecutor):
    """Raises instead of giving a future."""

    def execute_model(self, scheduled: Any) -> Any:
        raise RuntimeError("CUDA error")


class PartialScheduler(Scheduler):
    """Half a scheduler."""

    def add_request(self, request: Any) -> None:
        return None


def test_a_failure_of_the_executor_wakes_whoever_waits_for_a_step() -> None:
    component = Component(kind="executor", name="hanging", factory=HangingExecutor, settings=OracleSettings)
    core = make_core(components=[component], executor={"use": "hanging"}, clock=RealClock())
    core.add_request(request("r"))
    with pytest.raises(EngineDeadError, match="rank 3 is gone"):
        core.advance()


def test_an_executor_that_raises_at_once_says_what_was_scheduled_too() -> None:
    component = Component(kind="executor", name="raising", factory=RaisingExecutor, settings=OracleSettings)
    core = make_core(components=[component], executor={"use": "raising"})
    core.add_request(request("r"))
    with pytest.raises(EngineDeadError, match=r"step 1 \(5 tokens of 1 requests: 'r': 5.*CUDA error"):
        core.advance()


def test_a_component_that_lacks_members_of_its_interface_is_refused_by_name() -> None:
    """Field cases 132 and 135: a hook that is required has no default that hides its absence."""
    component = Component(
        kind="scheduler",
        name="partial",
        factory=lambda settings, context: cast(Any, PartialScheduler)(),
        capabilities=frozenset({"chunked_prefill", "prefix_caching"}),
    )
    with pytest.raises(PluginError, match=r"; Scheduler requires abort_requests\(self, .*unfinished_requests -> "):
        make_core(components=[component], scheduler={"use": "partial"})


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (lambda self: False, r"reset_prefix_cache must take \(self, reset_running_requests.*too many positional"),
        (lambda self, reset, *, reason: False, "reset_prefix_cache must take .*missing a required.*'reason'"),
    ],
)
def test_132_a_method_that_takes_other_arguments_is_refused_by_name(method: Any, message: str) -> None:
    """Written for another version of the interface: that is found before the first request."""
    drifted = type("Drifted", (ContinuousBatchingScheduler,), {"reset_prefix_cache": method})
    component = Component(
        kind="scheduler",
        name="drifted",
        factory=lambda settings, context: drifted(Fcfs(), context),
        capabilities=frozenset(SCHEDULER.capabilities),
    )
    with pytest.raises(PluginError, match=f"'drifted' made a Drifted, which is no Scheduler: {message}"):
        make_core(components=[component], scheduler={"use": "drifted"})


def test_an_executor_out_of_order_needs_a_scheduler_that_knows_of_it() -> None:
    """Field case 131."""
    component = Component(
        kind="scheduler",
        name="plain",
        factory=lambda settings, context: cast(Any, PartialScheduler)(),
        capabilities=frozenset({"batch_queue", "chunked_prefill", "prefix_caching"}),
    )
    with pytest.raises(ConfigurationError, match="does not declare 'out_of_order'"):
        make_core(components=[component], scheduler={"use": "plain"}, oracle={"in_order": False})


@pytest.mark.parametrize(
    ("method", "answer", "message"),
    [
        ("determine_available_memory", None, r"determine_available_memory\(\) gave None, not a number of bytes"),
        ("determine_available_memory", -5, "gave -5, not a number of bytes"),
        ("get_kv_cache_specs", {"a": 1}, r"get_kv_cache_specs\(\) gave {'a': 1}, not KVCacheSpecs by layer name"),
        ("get_kv_cache_specs", None, "gave None, not KVCacheSpecs"),
    ],
)
def test_an_executor_that_misreports_its_memory_is_named(method: str, answer: object, message: str) -> None:
    misreporting = type("Misreporting", (OracleExecutor,), {method: lambda self: answer})
    component = Component(kind="executor", name="odd", factory=misreporting, settings=OracleSettings)
    with pytest.raises(PluginError, match=f"executor 'odd': .*{message}"):
        make_core(components=[component], executor={"use": "odd"})


class Interrupted(SchedulingPolicy):
    """Something that is no Exception comes out of a step, as a signal handler would have it."""

    def rank(self, request: RequestView, scheduler: SchedulerView) -> float:
        return request.arrival

    def split(self, scheduler: SchedulerView) -> Split:
        raise SystemExit(3)


def test_an_interrupted_step_goes_on_as_what_it_is_and_later_calls_name_it() -> None:
    core = make_core(components=[policy_component("interrupted", Interrupted)], scheduler={"use": "interrupted"})
    core.add_request(request("r"))
    with pytest.raises(SystemExit):
        core.advance()
    with pytest.raises(EngineDeadError) as raised:
        core.advance()
    assert isinstance(raised.value.__cause__, SystemExit)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_is_told_that_the_engine_is_elsewhere() -> None:
    core = make_core()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            core.add_request(request("r"))
        except EngineDeadError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        told = pipe.read().decode()
    os.waitpid(child, 0)
    assert f"runs in process {os.getpid()}" in told
    core.add_request(request("r"))
    assert len(run(core)) == 4


class Refusing(SchedulingPolicy):
    """Raises in a step what is meant for a request that is being added."""

    def rank(self, request: RequestView, scheduler: SchedulerView) -> float:
        return request.arrival

    def split(self, scheduler: SchedulerView) -> Split:
        raise InvalidRequestError("too late")


def test_a_refusal_out_of_a_step_is_a_failure_like_any_other() -> None:
    core = make_core(components=[policy_component("refusing", Refusing)], scheduler={"use": "refusing"})
    core.add_request(request("r"))
    for _ in range(2):
        with pytest.raises(EngineDeadError, match="too late"):
            core.advance()
