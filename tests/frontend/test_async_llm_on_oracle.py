"""AsyncLLM on an engine core in a process of its own, with the oracle in place of a model."""

import asyncio
import os
import signal
from typing import Any

import pytest

from enginecore import LLM, AsyncLLM, SamplingParams
from enginecore.client import attach_async_client, make_async_client
from enginecore.errors import ConfigurationError, EngineDeadError, InvalidRequestError
from enginecore.frontend.outputs import RequestOutputKind
from enginecore.settings import load_settings
from tests.frontend.async_llms import kept

DELTA, FINAL_ONLY = RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY
PROMPTS = [[7] * 40, [1, 2, 3], [*range(60)], [9]]
SETTINGS: dict[str, Any] = {
    "executor": {"use": "oracle", "oracle": {"vocab_size": 100, "max_model_len": 256}},
    "debug": {"check_invariants": True},
    "num_kv_blocks": 64,
}
SLOW: dict[str, Any] = {
    "executor": {"use": "oracle", "oracle": {"vocab_size": 100, "max_model_len": 256, "step_time": 0.01}}
}


def make(**settings) -> Any:
    return AsyncLLM(**{**SETTINGS, **settings})


def params(**changes):
    return SamplingParams(**{"detokenize": False, "ignore_eos": True, "max_tokens": 8, **changes})


async def token_ids(llm, prompt, kind=DELTA, **changes):
    outputs = [output async for output in llm.generate(prompt, params(**changes), output_kind=kind)]
    assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
    if kind is not DELTA:
        outputs = outputs[-1:]
    return [token for output in outputs for token in output.outputs[0].token_ids]


async def last_of(stream):
    return [output async for output in stream][-1]


def no_tokenizer():
    raise AssertionError("the tokenizer was asked for")


def test_the_transport_is_zmq_unless_somebody_names_another(tmp_path):
    async def main():
        async with make() as llm:
            return llm.info.components["transport"]

    assert asyncio.run(main()) == "zmq"
    file = tmp_path / "engine.toml"
    file.write_text('[transport]\nuse = "inproc"\n')
    with pytest.raises(ConfigurationError, match="AsyncLLM"):
        AsyncLLM(config_file=file, executor={"use": "oracle"})


def test_the_tokens_are_those_of_llm_in_every_kind():
    with LLM(**SETTINGS) as llm:
        outputs = llm.generate(PROMPTS, params(max_tokens=30), use_tqdm=False)
        expected = [output.outputs[0].token_ids for output in outputs]

    async def main(kind):
        async with make() as llm:
            tokens = await asyncio.gather(*(token_ids(llm, prompt, kind, max_tokens=30) for prompt in PROMPTS))
            assert kept(llm) == 0
            return tokens

    for kind in RequestOutputKind:
        assert asyncio.run(main(kind)) == expected


def test_two_event_loops_in_turn_use_one_engine():
    llm = make()
    try:
        first, second = (asyncio.run(token_ids(llm, [1, 2, 3], temperature=0)) for _ in range(2))
        assert first == second
        assert len(first) == 8

        async def leave():
            async for _ in llm.generate([5], params(max_tokens=200)):
                return

        asyncio.run(leave())
        stats = asyncio.run(llm.get_stats())
        assert (stats.num_running, stats.num_waiting) == (0, 0)
    finally:
        llm.shutdown()


def test_what_is_cancelled_is_given_up_by_the_engine_core():
    async def main():
        async with make(**SLOW) as llm:
            tasks = [asyncio.create_task(token_ids(llm, [n], max_tokens=200)) for n in range(20)]
            while (await llm.get_stats()).num_running < 20:
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            while (await llm.get_stats()).num_running:
                await asyncio.sleep(0)
            assert await llm.reset_prefix_cache() is True
            assert kept(llm) == 0
            return await token_ids(llm, [1])

    assert len(asyncio.run(main())) == 8


def test_a_pause_holds_requests_and_a_resume_lets_them_go():
    async def main():
        async with make() as llm:
            await llm.pause()
            task = asyncio.create_task(token_ids(llm, [1]))
            while (await llm.get_stats()).num_waiting == 0:
                await asyncio.sleep(0)
            await llm.check_health()
            assert not task.done()
            await llm.resume()
            return await task

    assert len(asyncio.run(main())) == 8


def test_a_refusal_and_a_wrong_call_cost_nobody_else_anything():
    maybe: Any = "maybe"

    async def main():
        async with make(**SLOW) as llm:
            task = asyncio.create_task(token_ids(llm, [1], max_tokens=20))
            with pytest.raises(InvalidRequestError):
                await token_ids(llm, [100])
            with pytest.raises(InvalidRequestError):
                await llm.reset_prefix_cache(maybe)
            return await task

    assert len(asyncio.run(main())) == 20


def test_leaving_ends_open_streams_with_reason_abort():
    async def main():
        async with make(**SLOW) as llm:
            streams = [llm.generate([n], params(max_tokens=200), output_kind=DELTA) for n in range(3)]
            for stream in streams:
                await anext(stream)
        return [await last_of(stream) for stream in streams]

    assert [output.outputs[0].finish_reason for output in asyncio.run(main())] == ["abort"] * 3


def test_a_shutdown_timeout_lets_streams_come_to_their_own_end():
    async def main():
        async with make(**SLOW, shutdown_timeout=60) as llm:
            tasks = [asyncio.create_task(token_ids(llm, [n], max_tokens=20)) for n in range(3)]
            while (await llm.get_stats()).num_running < 3:
                await asyncio.sleep(0)
        return await asyncio.gather(*tasks)

    assert [len(tokens) for tokens in asyncio.run(main())] == [20] * 3


@pytest.mark.parametrize("kind", [DELTA, FINAL_ONLY])
def test_a_blocking_shutdown_ends_open_streams_with_reason_abort(kind):
    async def main():
        llm = make(**SLOW)
        streams = [llm.generate([n], params(max_tokens=200), output_kind=kind) for n in range(3)]
        last = [asyncio.create_task(last_of(stream)) for stream in streams]
        while (await llm.get_stats()).num_running < 3:
            await asyncio.sleep(0)
        llm.shutdown()
        outputs = await asyncio.gather(*last)
        with pytest.raises(EngineDeadError, match="shut down"):
            await token_ids(llm, [1])
        assert kept(llm) == 0
        return outputs

    assert [output.outputs[0].finish_reason for output in asyncio.run(main())] == ["abort"] * 3


def test_two_front_ends_of_one_engine_core_do_not_meet():
    loaded = load_settings({**SLOW, "transport": {"use": "zmq"}})

    async def main():
        client: Any = make_async_client(loaded)
        async with AsyncLLM.from_client(client, no_tokenizer) as first:
            second = AsyncLLM.from_client(attach_async_client(loaded, client.address), no_tokenizer)
            async with second:
                long = params(max_tokens=200)
                kept_on = first.generate([1], long, "same id", output_kind=DELTA)
                left = second.generate([1], long, "same id", output_kind=DELTA)
                await anext(kept_on)
                await anext(left)
                second.abort("same id")
                assert (await last_of(left)).outputs[0].finish_reason == "abort"
                open_at_exit = second.generate([1], long, "same id", output_kind=DELTA)
                await anext(open_at_exit)
            with pytest.raises(EngineDeadError, match="shut down"):
                await last_of(open_at_exit)
            assert kept(second) == 0
            return (await last_of(kept_on)).outputs[0].finish_reason

    assert asyncio.run(main()) == "length"


def test_when_the_engine_core_is_killed_everybody_is_told():
    async def main():
        llm = make(**SLOW)
        streams = [asyncio.create_task(token_ids(llm, [n], max_tokens=200)) for n in range(3)]
        while (await llm.get_stats()).num_running < 3:
            await asyncio.sleep(0)
        await llm.pause()
        call = asyncio.create_task(llm.get_stats())
        await asyncio.sleep(0)
        os.kill(llm._client.engine_core_pid, signal.SIGKILL)
        results = await asyncio.gather(*streams, call, return_exceptions=True)
        assert (llm.errored, llm.is_running) == (True, False)
        assert kept(llm) == 0
        late = await asyncio.gather(token_ids(llm, [1]), llm.check_health(), return_exceptions=True)
        llm.shutdown()
        return [*results[:3], *late]

    for error in asyncio.run(main()):
        assert isinstance(error, EngineDeadError)
        assert error.__cause__ is not None
