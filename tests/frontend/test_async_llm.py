"""AsyncLLM on a scripted engine core: streams, ids, utilities, and inputs."""

import asyncio
import contextvars
import threading
import time
from contextlib import aclosing

import pytest

from enginecore import AsyncLLM, SamplingParams
from enginecore.errors import EngineCoreError, InvalidRequestError, UtilityError
from enginecore.frontend.input_processor import derive_seed
from enginecore.frontend.outputs import RequestOutputKind
from enginecore.frontend.tokenizer import LazyTokenizer
from tests.frontend.async_llms import kept, make, pieces, read
from tests.frontend.byte_tokenizer import ByteTokenizer
from tests.frontend.scripted_async_client import ScriptedAsyncClient

DELTA, CUMULATIVE, FINAL_ONLY = RequestOutputKind.DELTA, RequestOutputKind.CUMULATIVE, RequestOutputKind.FINAL_ONLY


# -- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "texts"),
    [(DELTA, ["a", "b", "c"]), (CUMULATIVE, ["a", "ab", "abc"]), (FINAL_ONLY, ["abc"])],
)
def test_a_stream_gives_outputs_of_its_kind_and_ends_with_the_finished_one(kind, texts):
    llm, client = make()
    outputs = asyncio.run(read(llm, max_tokens=3, output_kind=kind))
    assert [output.outputs[0].text for output in outputs] == texts
    assert [output.outputs[0].finish_reason for output in outputs] == [None] * (len(texts) - 1) + ["length"]
    assert (outputs[-1].prompt, outputs[-1].prompt_token_ids) == ("Hi", [72, 105])
    assert outputs[-1].metrics.num_output_tokens == 3
    assert client.core.aborted == []
    assert kept(llm) == 0


def test_streams_side_by_side_get_their_own_outputs():
    llm, client = make()

    async def main():
        return await asyncio.gather(*(read(llm, f"p{n}", f"r{n}", max_tokens=n) for n in range(1, 40)))

    for n, outputs in enumerate(asyncio.run(main()), 1):
        assert {output.request_id for output in outputs} == {f"r{n}"}
        assert "".join(pieces(outputs)) == client.text[:n]
        assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
    assert kept(llm) == 0


def test_a_request_may_come_long_after_the_first_and_batches_may_follow_one_another():
    llm, client = make()

    async def main():
        first = asyncio.create_task(read(llm, max_tokens=50))
        while len(client.core.requests) == 0 or client.core.num_steps < 10:
            await asyncio.sleep(0)
        late = await read(llm, max_tokens=2)
        assert not first.done()
        batches = [await asyncio.gather(*(read(llm, max_tokens=3) for _ in range(4))) for _ in range(2)]
        return [await first, late, *batches[0], *batches[1]]

    lengths = [len("".join(pieces(outputs))) for outputs in asyncio.run(main())]
    assert lengths == [50, 2, *[3] * 8]
    assert kept(llm) == 0


def test_a_stop_string_ends_the_request_in_the_engine_core_too():
    llm, client = make()
    (output,) = asyncio.run(read(llm, max_tokens=50, stop=("cd",), output_kind=FINAL_ONLY))
    assert (output.outputs[0].text, output.outputs[0].stop_reason) == ("ab", "cd")
    assert client.core.aborted == [client.core.requests[0].request_id]
    assert kept(llm) == 0


def test_an_error_of_the_engine_core_ends_that_request_alone():
    llm, client = make()

    async def main():
        client.paused = True
        tasks = [asyncio.create_task(read(llm, request_id=name, max_tokens=2)) for name in ("good", "bad")]
        while len(client.core.requests) < 2:
            await asyncio.sleep(0)
        client.core.errors["bad-3-1"] = "the KV cache is too small"
        client.resume()
        return await asyncio.gather(*tasks)

    good, bad = asyncio.run(main())
    assert (good[-1].outputs[0].finish_reason, good[-1].error) == ("length", None)
    assert (bad[-1].outputs[0].finish_reason, bad[-1].error) == ("error", "the KV cache is too small")


class Refuses(ByteTokenizer):
    """Fails on "b" in a stream."""

    def decode_stream(self, prompt_token_ids=(), *, skip_special_tokens=True):
        stream = super().decode_stream(prompt_token_ids, skip_special_tokens=skip_special_tokens)
        step = stream.step

        def picky(token_id):
            if token_id == ord("b"):
                raise RuntimeError("no b")
            return step(token_id)

        stream.step = picky
        return stream


def test_a_tokenizer_that_fails_on_one_text_ends_only_that_request():
    client = ScriptedAsyncClient(lambda request: list(b"ab" if request.prompt_token_ids == [1] else b"acd"))
    llm = AsyncLLM.from_client(client, Refuses)

    async def main():
        return await asyncio.gather(read(llm, [1], max_tokens=3), read(llm, [2], max_tokens=3))

    bad, good = asyncio.run(main())
    assert [(output.outputs[0].finish_reason, output.error) for output in bad][-1] == ("error", "RuntimeError: no b")
    assert "".join(pieces(good)) == "acd"
    assert client.core.aborted == [client.core.requests[0].request_id]


# -- slow consumers --------------------------------------------------------------------------------------------------


def test_a_consumer_that_does_not_read_finds_one_output_and_keeps_nobody_waiting():
    llm, client = make(max_model_len=10_000)

    async def main():
        async with aclosing(llm.generate("Hi", SamplingParams(max_tokens=5_000), output_kind=DELTA)) as slow:
            first = await anext(slow)
            fast = await read(llm, max_tokens=4_000)
            while client.core.live:
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            rest = [output async for output in slow]
        return first, fast, rest

    first, fast, rest = asyncio.run(main())
    assert len(fast) == 4_000
    assert "".join(pieces(fast)) == client.text[:4_000]
    assert len(rest) == 1
    assert first.outputs[0].text + rest[0].outputs[0].text == client.text[:5_000]
    assert len(rest[0].outputs[0].token_ids) == 4_999
    assert [first.outputs[0].finish_reason, rest[0].outputs[0].finish_reason] == [None, "length"]


@pytest.mark.parametrize("away", [0, 1, 2, 7, 1_000])
@pytest.mark.parametrize("kind", [DELTA, CUMULATIVE])
def test_however_outputs_merge_nothing_is_lost_and_the_reason_comes_once_and_last(kind, away):
    llm, client = make(max_model_len=10_000)

    async def main():
        outputs = []
        params = SamplingParams(max_tokens=300, logprobs=1, stop=("never",))
        async for output in llm.generate("Hi", params, output_kind=kind):
            outputs.append(output)
            for _ in range(away):
                await asyncio.sleep(0)
        return outputs

    outputs = asyncio.run(main())
    completions = [output.outputs[0] for output in outputs]
    whole = completions if kind is DELTA else completions[-1:]
    assert "".join(completion.text for completion in whole) == client.text[:300]
    assert bytes(token for completion in whole for token in completion.token_ids).decode() == client.text[:300]
    assert sum(len(completion.logprobs) for completion in whole) == 300
    reasons = [completion.finish_reason for completion in completions]
    assert reasons == [None] * (len(reasons) - 1) + ["length"]
    assert len(outputs) <= 300 // max(away // 2, 1) + 2


def test_when_more_arrives_than_the_event_loop_can_take_outputs_merge_and_others_get_their_turn():
    llm, client = make(max_model_len=10_000)
    client.waits = False  # the engine core is always ahead

    async def main():
        await read(llm, max_tokens=1)  # with the tokenizer, which is loaded in a thread
        task = asyncio.create_task(read(llm, max_tokens=5_000))
        rounds = 0
        while not task.done():
            await asyncio.sleep(0)
            rounds += 1
        return await task, rounds

    outputs, rounds = asyncio.run(main())
    assert "".join(pieces(outputs)) == client.text[:5_000]
    assert 5 < rounds < 500
    assert len(outputs) <= rounds


# -- ids -------------------------------------------------------------------------------------------------------------


def test_a_live_id_is_refused_for_the_second_only():
    llm, client = make()

    async def main():
        first = asyncio.create_task(read(llm, request_id="a", max_tokens=20))
        while client.core.num_steps < 3:
            await asyncio.sleep(0)
        with pytest.raises(InvalidRequestError, match="'a' is taken"):
            await read(llm, request_id="a")
        return await first

    assert "".join(pieces(asyncio.run(main()))) == client.text[:20]
    assert [request.request_id for request in client.core.requests] == ["a-3-0"]
    assert client.core.aborted == []


def test_of_two_that_start_at_once_under_one_id_one_runs():
    llm, client = make()

    async def main():
        return await asyncio.gather(
            *(read(llm, request_id="a", max_tokens=3) for _ in range(2)), return_exceptions=True
        )

    first, second = asyncio.run(main())
    assert "".join(pieces(first)) == "abc"
    assert isinstance(second, InvalidRequestError)
    assert len(client.core.requests) == 1


def test_an_id_may_be_used_again_right_after_its_end():
    llm, client = make()

    async def main():
        return [await read(llm, request_id="a", max_tokens=2) for _ in range(3)]

    assert ["".join(pieces(outputs)) for outputs in asyncio.run(main())] == ["ab"] * 3
    assert [request.request_id for request in client.core.requests] == ["a-3-0", "a-3-1", "a-3-2"]


def test_an_id_may_be_used_again_right_after_an_abort_and_late_outputs_do_not_hit_the_new_request():
    llm, client = make()

    async def main():
        old = llm.generate("Hi", SamplingParams(max_tokens=50), "a", output_kind=DELTA)
        await anext(old)
        client.core.late = [client.core._advance("a-3-0", client.core.live["a-3-0"])]
        llm.abort("a")
        new = await read(llm, request_id="a", max_tokens=2)
        return [output async for output in old], new

    old, new = asyncio.run(main())
    assert [output.outputs[0].finish_reason for output in old] == ["abort"]
    assert (pieces(new), new[-1].outputs[0].finish_reason) == (["a", "b"], "length")
    assert client.core.aborted == ["a-3-0"]
    assert kept(llm) == 0


def test_ids_are_made_for_requests_without_one_and_clash_with_nobody():
    llm, _ = make()

    async def main():
        taken = llm.generate("Hi", SamplingParams(max_tokens=50), "generate-1")
        await anext(taken)
        outputs = [await read(llm, max_tokens=1) for _ in range(3)]
        await taken.aclose()
        return [output.request_id for (output,) in outputs]

    assert asyncio.run(main()) == ["generate-0", "generate-2", "generate-3"]


@pytest.mark.parametrize("request_id", ["", "x" * 257, "\ud800", 5])
def test_an_id_that_cannot_be_is_refused(request_id):
    llm, client = make()
    with pytest.raises(InvalidRequestError, match="request_id"):
        asyncio.run(read(llm, request_id=request_id))
    assert client.core.requests == []


def test_seeds_depend_on_the_engine_seed_and_the_number_of_the_accepted_request():
    llm, client = make()

    async def main():
        await read(llm)
        with pytest.raises(InvalidRequestError, match="adapters"):
            await anext(llm.generate("Hi", adapter="x"))
        await read(llm, seed=3)
        await read(llm)

    asyncio.run(main())
    seeds = [getattr(request.params, "seed", None) for request in client.core.requests]
    assert seeds == [derive_seed(7, 0), 3, derive_seed(7, 2)]


# -- abort -----------------------------------------------------------------------------------------------------------


def test_an_abort_ends_streams_with_reason_abort_and_tells_the_engine_core_once():
    llm, client = make()

    async def main():
        streams = {name: llm.generate("Hi", SamplingParams(max_tokens=50), name) for name in ("a", "b", "c")}
        for stream in streams.values():
            await anext(stream)
        llm.abort("a")
        llm.abort(["a", "b", "b", "unknown"])
        ends = [[output async for output in streams[name]][-1] for name in ("a", "b")]
        await anext(streams["c"])
        await streams["c"].aclose()
        return ends

    ends = asyncio.run(main())
    assert [output.outputs[0].finish_reason for output in ends] == ["abort", "abort"]
    assert all(output.outputs[0].text for output in ends)
    assert client.core.aborted == ["a-3-0", "b-3-1", "c-3-2"]
    assert kept(llm) == 0


def test_an_abort_reaches_a_consumer_that_waits():
    llm, client = make()

    async def main():
        client.paused = True
        task = asyncio.create_task(read(llm, request_id="a"))
        while not client.core.requests:
            await asyncio.sleep(0)
        llm.abort("a")
        return await task

    assert [output.outputs[0].finish_reason for output in asyncio.run(main())] == ["abort"]


# -- inputs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", ["", [], [-1], {"text": "Hi"}, 5])
def test_a_refused_prompt_leaves_nothing_behind(prompt):
    llm, client = make()

    async def main():
        with pytest.raises(InvalidRequestError):
            await read(llm, prompt)
        return await read(llm, max_tokens=1)

    assert pieces(asyncio.run(main())) == ["a"]
    assert len(client.core.requests) == 1
    assert kept(llm) == 0


def test_what_the_engine_core_refuses_is_refused_here_and_leaves_nothing():
    llm, _ = make()

    async def main():
        with pytest.raises(InvalidRequestError, match="adapters are not supported"):
            await anext(llm.generate("Hi", request_id="a", adapter="x"))
        return await read(llm, request_id="a", max_tokens=1)

    assert pieces(asyncio.run(main())) == ["a"]
    assert kept(llm) == 0


def test_many_threads_load_one_tokenizer():
    loads = []
    start = threading.Barrier(8)

    def load():
        loads.append(1)
        start.wait(10)
        time.sleep(0.05)  # the others are on their way; if one of them is late, nothing is shown
        return ByteTokenizer()

    tokenizer = LazyTokenizer(load)

    def use():
        if threading.current_thread().name != "0":
            start.wait(10)
        return tokenizer()

    threads = [threading.Thread(target=use, name=str(number)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads == [1]


class Watched(ByteTokenizer):
    """Notes the threads that it works in."""

    def __init__(self):
        super().__init__()
        self.made_in = threading.current_thread()
        self.encoded_in = []

    def encode(self, text, *, add_special_tokens=True):
        self.encoded_in.append(threading.current_thread())
        return super().encode(text[:50])


def test_the_tokenizer_is_loaded_once_and_long_texts_are_tokenised_outside_the_event_loop():
    tokenizers = []

    def load():
        tokenizers.append(Watched())
        return tokenizers[-1]

    llm = AsyncLLM.from_client(ScriptedAsyncClient(lambda request: [97]), load)

    async def main():
        await read(llm, [1], detokenize=False)
        assert tokenizers == []
        await asyncio.gather(*(read(llm, "Hi", max_tokens=1) for _ in range(8)), read(llm, [1], max_tokens=1))
        (tokenizer,) = tokenizers
        assert tokenizer is llm.get_tokenizer()
        tokenizer.encoded_in.clear()
        for prompt in ("short", "long" * 1_000, {"prompt": "long" * 1_000}):
            await read(llm, prompt, max_tokens=1)
        return tokenizer

    tokenizer = asyncio.run(main())
    assert tokenizer.made_in is not threading.main_thread()
    assert [thread is threading.main_thread() for thread in tokenizer.encoded_in] == [True, False, False]


def test_a_conversation_is_rendered_by_the_chat_template():
    llm, client = make()

    async def main():
        messages = [{"role": "user", "content": "Hi"}]
        stream = llm.chat(messages, SamplingParams(max_tokens=2), "a", chat_template_kwargs={"x": 1})
        with pytest.raises(InvalidRequestError, match="at least one message"):
            await anext(llm.chat([]))
        return [output async for output in stream]

    outputs = asyncio.run(main())
    assert outputs[-1].prompt == "<user>Hi\nx=1\n<assistant>"
    assert outputs[-1].outputs[0].text == "ab"
    assert len(client.core.requests) == 1


# -- utilities -------------------------------------------------------------------------------------------------------


def test_utilities_reach_the_engine_core():
    llm, client = make()
    calls = []

    def answer(*words):
        calls.append(words)
        return "value"

    client.on_call = answer

    async def main():
        assert await llm.reset_prefix_cache() is True
        await llm.pause()
        await llm.resume()
        await llm.check_health()
        return await llm.get_stats(), await llm.collective_rpc("method", 1, "x")

    assert asyncio.run(main()) == ("value", "value")
    assert calls == [
        ("reset_prefix_cache", False),
        ("pause",),
        ("resume",),
        ("check_health",),
        ("get_stats",),
        ("collective_rpc", "method", 1, "x"),
    ]
    assert kept(llm) == 0


def test_a_utility_that_fails_is_its_callers_affair():
    llm, client = make()

    def fail(*words):
        raise UtilityError("no such method")

    client.on_call = fail

    async def main():
        stream = asyncio.create_task(read(llm, max_tokens=30))
        with pytest.raises(UtilityError, match="no such method"):
            await llm.collective_rpc("nothing")
        return await stream

    assert len("".join(pieces(asyncio.run(main())))) == 30


def test_a_cancelled_utility_leaves_nothing():
    llm, client = make()

    async def main():
        client.due = None  # the reader fails if it is asked
        call = asyncio.create_task(llm.get_stats())
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.sleep(0)
        assert client.calls == {}

    asyncio.run(main())


def test_the_reader_does_not_live_in_the_context_of_whoever_came_first():
    llm, client = make()
    user = contextvars.ContextVar("user", default="nobody")
    seen = []
    client.core.on_output = lambda: seen.append(user.get())

    async def main():
        user.set("the first")
        await read(llm, max_tokens=2)

    asyncio.run(main())
    assert seen == ["nobody", "nobody"]


def test_outside_an_event_loop_nothing_is_promised():
    llm, _ = make()
    llm.abort("unknown")
    assert llm.is_running
    assert not llm.errored
    assert llm.info.model == "scripted"
    with pytest.raises(EngineCoreError, match="inproc"):
        AsyncLLM(executor={"use": "oracle"}, transport={"use": "inproc"})
