"""One AsyncLLM over several engine cores: each request goes to one, and the end of one is not the end of all."""

# pyright: reportAttributeAccessIssue=false

import asyncio

import msgspec
import pytest

from enginecore import AsyncLLM, SamplingParams
from enginecore.client import AsyncRoutedClient
from enginecore.errors import ConfigurationError, EngineCoreError, EngineDeadError
from enginecore.frontend.outputs import RequestOutputKind
from enginecore.messages import EngineCoreOutputs, SchedulerStats
from tests.frontend.scripted_async_client import ScriptedAsyncClient

PARAMS = SamplingParams(detokenize=False, ignore_eos=True, max_tokens=5)


def answer_from(first):
    return lambda request: [first + n for n in range(5)]


def make(count=2, **options):
    """Engine cores that answer with tokens 10, 11, ... and 20, 21, ..., and a client that routes by the first token."""
    clients = [ScriptedAsyncClient(answer_from(10 * (place + 1)), **options) for place in range(count)]
    routed = AsyncRoutedClient(clients, lambda request: request.prompt_token_ids[0] % count)
    return clients, routed, AsyncLLM.from_client(routed, no_tokenizer)


def no_tokenizer():
    raise AssertionError("the tokenizer was asked for")


async def last_of(llm, prompt, **fields):
    stream = llm.generate(prompt, PARAMS, output_kind=RequestOutputKind.FINAL_ONLY, **fields)
    return [output async for output in stream][-1]


def test_each_request_is_served_where_it_was_sent():
    async def run():
        _, _, llm = make()
        outputs = await asyncio.gather(*(last_of(llm, [n]) for n in range(20)))
        for n, output in enumerate(outputs):
            assert output.outputs[0].token_ids == [10 * (n % 2 + 1) + k for k in range(5)]

    asyncio.run(run())


def test_two_event_loops_in_turn():
    _, _, llm = make()
    for _ in range(3):
        assert asyncio.run(last_of(llm, [1])).outputs[0].token_ids[0] == 20
        assert asyncio.run(last_of(llm, [0])).outputs[0].token_ids[0] == 10


def test_the_end_of_one_ends_its_requests_only():
    async def run():
        clients, routed, llm = make()
        clients[1].paused = True
        lost = asyncio.ensure_future(last_of(llm, [1]))
        await asyncio.sleep(0)
        assert (await last_of(llm, [0])).outputs[0].token_ids[0] == 10
        clients[1].die(EngineDeadError("killed"))
        output = await lost
        assert output.outputs[0].finish_reason == "error"
        assert output.error == "engine core 1 has failed: killed"
        assert llm.is_running
        assert routed.failure is None
        assert (await last_of(llm, [0])).outputs[0].finish_reason == "length"
        with pytest.raises(EngineDeadError):
            await last_of(llm, [1])
        clients[0].die(EngineDeadError("killed, too"))
        with pytest.raises(EngineDeadError):
            await last_of(llm, [0])
        assert llm.errored

    asyncio.run(run())


def test_a_request_that_one_engine_core_has_lost_ends_by_an_error():
    async def run():
        clients, _, llm = make()
        clients[0].paused = clients[1].paused = True
        lost, other = asyncio.ensure_future(last_of(llm, [1])), asyncio.ensure_future(last_of(llm, [0]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        clients[1].due.append(EngineCoreOutputs(idle=True))
        clients[1].look()
        output = await lost
        assert output.outputs[0].finish_reason == "error"
        assert output.error is not None
        assert "never ended this request" in output.error
        clients[0].resume()
        assert (await other).outputs[0].finish_reason == "length"

    asyncio.run(run())


def test_aborts_go_where_the_request_is():
    async def run():
        clients, _, llm = make()
        clients[0].paused = clients[1].paused = True
        streams = [asyncio.ensure_future(last_of(llm, [n])) for n in range(4)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [len(client.core.live) for client in clients] == [2, 2]
        streams[1].cancel()
        await asyncio.wait({streams[1]})
        assert [len(client.core.live) for client in clients] == [2, 1]
        for stream in streams:
            stream.cancel()
        await asyncio.wait(streams)
        assert [len(client.core.live) for client in clients] == [0, 0]

    asyncio.run(run())


def test_utilities_reach_all_and_counters_are_summed():
    async def run():
        clients, _, llm = make()
        for place, client in enumerate(clients):
            client.on_call = lambda name, *args, n=place + 1: (
                SchedulerStats(num_running=n) if name == "get_stats" else n == 1
            )
        assert (await llm.get_stats()).num_running == 3
        assert await llm.reset_prefix_cache() is False

    asyncio.run(run())


def test_shutdown_ends_all():
    async def run():
        clients, _, llm = make()
        clients[0].paused = clients[1].paused = True
        streams = [asyncio.ensure_future(last_of(llm, [n])) for n in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await llm.drain()
        assert [(await stream).outputs[0].finish_reason for stream in streams] == ["abort", "abort"]

    asyncio.run(run())


def test_what_cannot_be_served_behind_one_front_end_is_refused():
    with pytest.raises(ConfigurationError, match="at least one engine core"):
        AsyncRoutedClient([], lambda request: 0)
    clients, routed, _ = make()
    with pytest.raises(EngineCoreError, match="no common address"):
        _ = routed.address
    clients[1].info = msgspec.structs.replace(clients[1].info, vocab_size=7)
    with pytest.raises(ConfigurationError, match="must have the same vocab_size"):
        AsyncRoutedClient(clients, lambda request: 0)
