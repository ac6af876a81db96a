"""One client over several real engine cores, in this process and in others: `RoutedClient`, `AsyncRoutedClient`."""

# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

import asyncio
import os
import select
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec
import pytest

from enginecore.client import AsyncRoutedClient, RoutedClient, attach_client, make_async_client, make_client
from enginecore.errors import ConfigurationError, EngineDeadError, InvalidRequestError, UtilityError
from enginecore.frontend.llm_engine import LLMEngine
from enginecore.interfaces import EngineCoreClient
from enginecore.messages import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, FinishReason
from enginecore.sampling import SamplingParams
from enginecore_conformance.oracle.model import OracleModel
from tests.client.starting import DEADLINE, Traces, load, wait_until
from tests.core.engines import request

SLOW = {"executor.oracle.step_time": 0.02}
TRANSPORTS = ("inproc", "zmq")


@pytest.fixture(autouse=True)
def traces() -> Iterator[None]:
    traces = Traces()
    yield
    traces.check()


def by_length(request: EngineCoreRequest) -> int:
    return len(request.prompt_token_ids) % 2


@contextmanager
def routed(transport: str, *, route: Any = by_length, on_outputs: Any = None, **settings: Any):
    """A routed client, and its clients."""
    with ExitStack() as stack:
        clients = [make_client(load(transport=transport, **settings)) for _ in range(2)]
        for client in clients:
            stack.callback(client.shutdown)
        given = {} if on_outputs is None else {"on_outputs": on_outputs}
        yield RoutedClient(clients, route, **given), clients


@contextmanager
def async_routed(*, route: Any = by_length, **settings: Any):
    with ExitStack() as stack:
        clients = [make_async_client(load(**settings)) for _ in range(2)]
        for client in clients:
            stack.callback(client.shutdown)
        yield AsyncRoutedClient(clients, route), clients


Collected = dict[str, list[EngineCoreOutput]]


def collect(outputs: EngineCoreOutputs, into: Collected) -> None:
    for output in outputs.outputs:
        into.setdefault(output.request_id, []).append(output)


def run(client: EngineCoreClient) -> Collected:
    """All outputs until nothing is left."""
    collected: Collected = {}
    while not (outputs := client.get_output()).idle:
        collect(outputs, collected)
    return collected


async def run_until_ended(client: AsyncRoutedClient, names: set[str], collected: Collected) -> Collected:
    async with asyncio.timeout(DEADLINE):
        while names - ends(collected).keys():
            collect(await client.get_output(), collected)
    return collected


def ends(collected: Collected) -> dict[str, FinishReason]:
    return {name: given[-1].finish_reason for name, given in collected.items() if given[-1].finish_reason is not None}


def tokens(collected: Collected) -> dict[str, list[int]]:
    return {name: [token for each in given for token in each.new_token_ids] for name, given in collected.items()}


def make_requests(count: int, **fields: Any) -> list[EngineCoreRequest]:
    return [request(f"r{number}", prompt=3 + number, **fields) for number in range(count)]


def expected(client: Any, requests: list[EngineCoreRequest]) -> dict[str, list[int]]:
    model = OracleModel.of_engine(client.info)
    return {each.request_id: model.expected_output_of(each).token_ids for each in requests}


# -- synchronous -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_tokens_are_those_of_the_model_and_each_core_serves_its_share(transport: str) -> None:
    served: Counter[int] = Counter()

    def count(index: int, outputs: EngineCoreOutputs) -> None:
        served[index] += sum(output.finish_reason is not None for output in outputs.outputs)

    with routed(transport, on_outputs=count) as (client, _):
        for _ in range(2):  # requests end, and others come
            requests = make_requests(7, max_tokens=6)
            for each in requests:
                client.add_request(each)
            collected = run(client)
            assert tokens(collected) == expected(client, requests)
            assert set(ends(collected)) == {each.request_id for each in requests}
    assert served == {0: 6, 1: 8}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_front_end_works_on_it_as_on_any_client(transport: str) -> None:
    with routed(transport) as (client, _):
        engine = LLMEngine(client, no_tokenizer)
        params = SamplingParams(max_tokens=5, ignore_eos=True, detokenize=False)
        for number in range(4):
            engine.add_request(f"r{number}", {"prompt_token_ids": list(range(1 + number))}, params)
        outputs = []
        while engine.has_unfinished_requests():
            outputs += [output for output in engine.step() if output.finished]
        assert sorted(output.request_id for output in outputs) == ["r0", "r1", "r2", "r3"]
        assert all(len(output.outputs[0].token_ids) == 5 for output in outputs)


def no_tokenizer() -> Any:
    raise AssertionError("the tokenizer was asked for")


def test_a_slow_engine_core_does_not_hold_up_the_others() -> None:
    with ExitStack() as stack:
        slow = make_client(load(**{"executor.oracle.step_time": 0.3}))
        stack.callback(slow.shutdown)
        fast = make_client(load())
        stack.callback(fast.shutdown)
        client = RoutedClient([slow, fast], lambda request: int(request.request_id == "fast"))
        client.add_request(request("slow", max_tokens=50))
        client.add_request(request("fast", max_tokens=50))
        collected: Collected = {}
        while "fast" not in ends(collected):
            collect(client.get_output(), collected)
        assert "slow" not in ends(collected)
        assert len(collected.get("slow", [])) < 10


def test_its_descriptors_are_readable_when_there_is_something_to_take() -> None:
    with routed("zmq", **SLOW) as (client, _):
        assert client.take_output() == EngineCoreOutputs(idle=True)
        client.add_request(request("r", max_tokens=3))
        collected: Collected = {}
        while not ends(collected):
            if (outputs := client.take_output()) is None:
                assert select.select(client.filenos, [], [], DEADLINE)[0]
            else:
                collect(outputs, collected)
        assert ends(collected) == {"r": FinishReason.LENGTH}


def test_aborts_go_where_the_requests_are() -> None:
    with routed("zmq", **SLOW) as (client, clients):
        for each in make_requests(4, max_tokens=None):
            client.add_request(each)
        client.abort_requests(["r0", "r1", "r2", "nobody"])
        wait_until(
            lambda: [one.call_utility("get_stats").num_running for one in clients] == [1, 0], "aborts take effect"
        )
        assert client.call_utility("get_stats").num_running == 1
        client.abort_requests(["r3"])
        assert run(client).keys() <= {"r0", "r1", "r2", "r3"}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_refusal_ends_the_refused_request_alone(transport: str) -> None:
    with routed(transport) as (client, _):
        client.add_request(request("good", prompt=3))
        refused = msgspec.structs.replace(request("bad", prompt=4), prompt_token_ids=[1 << 20] * 4)
        collected: Collected = {}
        try:
            client.add_request(refused)
        except InvalidRequestError:
            collected["bad"] = [EngineCoreOutput("bad", [], FinishReason.ERROR)]
        collected |= run(client)
        assert ends(collected) == {"good": FinishReason.LENGTH, "bad": FinishReason.ERROR}
        client.add_request(request("bad", prompt=4))  # nothing is left of it
        assert ends(run(client)) == {"bad": FinishReason.LENGTH}


def test_an_id_in_use_and_a_route_to_nowhere_are_refused() -> None:
    places = iter([0, 2, -1, "one", 1])
    with routed("inproc", route=lambda request: next(places)) as (client, _):
        client.add_request(request("r"))
        with pytest.raises(InvalidRequestError, match="'r' is unfinished: its id cannot be used again"):
            client.add_request(request("r"))
        for chosen in ("2", "-1", "'one'"):
            with pytest.raises(InvalidRequestError, match=f"chose engine core {chosen}; it must be one of 0 to 1"):
                client.add_request(request("lost"))
        client.add_request(request("lost"))
        assert set(ends(run(client))) == {"r", "lost"}


def test_ids_of_front_ends_that_number_alike_do_not_meet() -> None:
    """A front end of one engine core, and one of two whose first counts its front ends as the other counts its own."""
    with routed("zmq", route=lambda request: 1, **SLOW) as (client, clients):
        direct = attach_client(load(), clients[1].address)
        attach_client(load(), clients[0].address).shutdown()
        assert direct.client_index == 1
        assert client.client_index not in (clients[0].client_index, clients[1].client_index, direct.client_index)
        engines = [LLMEngine(each, no_tokenizer) for each in (client, direct)]
        params = SamplingParams(max_tokens=4, ignore_eos=True, detokenize=False)
        for engine in engines:
            engine.add_request("same", {"prompt_token_ids": [1, 2]}, params)
        for engine in engines:
            while engine.has_unfinished_requests():
                assert all(output.error is None for output in engine.step())
        direct.shutdown()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_failure_of_one_ends_its_requests_alone(transport: str) -> None:
    faults = {"executor.oracle.faults": [{"kind": "fail", "step": 3}]}
    with ExitStack() as stack:
        clients = [make_client(load(transport=transport)), make_client(load(transport=transport, **faults))]
        for each in clients:
            stack.callback(each.shutdown)
        client = RoutedClient(clients, by_length)
        client.add_request(request("fatal", prompt=3, max_tokens=9))
        client.add_request(request("same core", prompt=5, max_tokens=9))
        client.add_request(request("other core", prompt=4, max_tokens=9))
        collected = run(client)
        wanted = {"fatal": FinishReason.ERROR, "same core": FinishReason.ERROR, "other core": FinishReason.LENGTH}
        assert ends(collected) == wanted
        for name in ("fatal", "same core"):
            assert str(collected[name][-1].error).startswith("engine core 1 has failed: ")
        with pytest.raises(EngineDeadError, match="engine core 1 has failed"):
            client.add_request(request("later", prompt=3))
        client.add_request(request("later", prompt=4))
        assert ends(run(client)) == {"later": FinishReason.LENGTH}
        assert client.call_utility("get_stats").num_running == 0
        clients[0].shutdown()
        assert run_to_the_end(client) == {}
        with pytest.raises(EngineDeadError, match="'get_stats': no engine core is left"):
            client.call_utility("get_stats")


def run_to_the_end(client: RoutedClient) -> Collected:
    """All outputs until no engine core is left."""
    collected: Collected = {}
    while True:
        try:
            collect(client.get_output(), collected)
        except EngineDeadError as error:
            if not (str(error).startswith("no engine core is left: engine core ") and error.__cause__):
                raise
            return collected


def test_a_process_that_is_killed_ends_its_requests_alone() -> None:
    with routed("zmq", **SLOW) as (client, clients):
        client.add_request(request("lost", prompt=3, max_tokens=None))
        client.add_request(request("kept", prompt=4, max_tokens=20))
        collected: Collected = {}
        collect(client.get_output(), collected)
        os.kill(clients[1].engine_core_pid, signal.SIGKILL)
        for name, given in run(client).items():
            collected.setdefault(name, []).extend(given)
        assert ends(collected) == {"lost": FinishReason.ERROR, "kept": FinishReason.LENGTH}
        assert "was killed by SIGKILL" in str(collected["lost"][-1].error)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_values_of_control_calls_become_one(transport: str) -> None:
    with routed(transport) as (client, clients):
        num_blocks = clients[0].info.num_blocks
        assert client.call_utility("is_alive") is True
        assert client.call_utility("get_stats").num_blocks == 2 * num_blocks
        assert client.call_utility("collective_rpc", "get_request_ids") == [[], []]
        assert client.call_utility("pause") is None
        with pytest.raises(InvalidRequestError, match="no utility 'nonsense'"):
            client.call_utility("nonsense")
        with pytest.raises(UtilityError, match="no_such_method"):
            client.call_utility("collective_rpc", "no_such_method")
        assert client.call_utility("resume") is None


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_shutdown_drains_all_and_may_be_repeated(transport: str) -> None:
    with routed(transport, shutdown_timeout=30.0) as (client, _):
        requests = make_requests(4, max_tokens=8)
        for each in requests:
            client.add_request(each)
        client.shutdown()
        client.shutdown()
        collected = run_to_the_end(client)
        assert ends(collected) == dict.fromkeys(expected(client, requests), FinishReason.LENGTH)
        assert tokens(collected) == expected(client, requests)


def test_engine_cores_of_different_models_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least one engine core"):
        RoutedClient([], by_length)
    with ExitStack() as stack:
        clients = [make_client(load(transport="inproc", **{"executor.oracle.vocab_size": n})) for n in (256, 300)]
        for client in clients:
            stack.callback(client.shutdown)
        with pytest.raises(ConfigurationError, match=r"must have the same vocab_size, got \[256, 300\]"):
            RoutedClient(clients, by_length)


# -- asyncio ---------------------------------------------------------------------------------------------------------


def test_the_asyncio_half_gives_the_tokens_of_the_model() -> None:
    with async_routed() as (client, _):

        async def talk() -> None:
            requests = make_requests(7, max_tokens=6)
            for each in requests:
                client.add_request(each)
            collected = await run_until_ended(client, {each.request_id for each in requests}, {})
            assert tokens(collected) == expected(client, requests)

        for _ in range(2):  # a second event loop goes on where the first one ended
            asyncio.run(talk())


def test_in_the_asyncio_half_a_process_that_is_killed_ends_its_requests_alone() -> None:
    async def talk(client: AsyncRoutedClient, clients: list[Any]) -> None:
        client.add_request(request("lost", prompt=3, max_tokens=None))
        client.add_request(request("kept", prompt=4, max_tokens=20))
        collected: Collected = {}
        collect(await client.get_output(), collected)
        os.kill(clients[1].engine_core_pid, signal.SIGKILL)
        await run_until_ended(client, {"lost", "kept"}, collected)
        assert ends(collected) == {"lost": FinishReason.ERROR, "kept": FinishReason.LENGTH}
        assert "engine core 1 has failed" in str(collected["lost"][-1].error)
        assert client.failure is None
        with pytest.raises(EngineDeadError, match="engine core 1 has failed"):
            client.add_request(request("later", prompt=3))

    with async_routed(**SLOW) as (client, clients):
        asyncio.run(talk(client, clients))


def test_in_the_asyncio_half_control_calls_reach_all() -> None:
    async def talk(client: AsyncRoutedClient) -> None:
        reading = asyncio.create_task(client.get_output())
        assert (await client.call_utility("get_stats")).num_blocks == 128
        assert await client.call_utility("collective_rpc", "get_request_ids") == [[], []]
        with pytest.raises(InvalidRequestError, match="no utility 'nonsense'"):
            await client.call_utility("nonsense")
        reading.cancel()

    with async_routed() as (client, _):
        asyncio.run(talk(client))


def test_the_asyncio_half_drains_all() -> None:
    async def talk(client: AsyncRoutedClient) -> None:
        requests = make_requests(4, max_tokens=8)
        for each in requests:
            client.add_request(each)
        await client.drain()
        collected = await run_until_ended(client, {each.request_id for each in requests}, {})
        assert tokens(collected) == expected(client, requests)

    with async_routed(shutdown_timeout=30.0) as (client, _):
        asyncio.run(talk(client))
