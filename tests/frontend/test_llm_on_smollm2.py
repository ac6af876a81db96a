"""The whole way with the packaged model: text in, text out."""

import asyncio

import pytest

from enginecore import LLM, AsyncLLM, SamplingParams
from enginecore.frontend.outputs import RequestOutputKind

pytestmark = pytest.mark.model

GREEDY = SamplingParams(temperature=0, max_tokens=8)


@pytest.fixture(scope="module")
def llm():
    with LLM(max_model_len=256, kv_cache_memory="64MiB") as llm:
        yield llm


def test_a_completion_is_the_models_and_its_text_that_of_its_tokens(llm):
    (output,) = llm.generate("The capital of France is", GREEDY)
    completion = output.outputs[0]
    assert completion.text.startswith(" Paris")
    assert completion.text == llm.get_tokenizer().decode(completion.token_ids)
    assert output.metrics.num_output_tokens == len(completion.token_ids)


def test_a_stream_of_several_prompts_adds_up_to_what_generate_gives(llm):
    prompts = ["Write an emoji: 😀", "1 2 3 4", "你好世"]
    pieces = list(llm.stream(prompts, GREEDY))
    for number, whole in enumerate(llm.generate(prompts, GREEDY)):
        mine = [output.outputs[0] for index, output in pieces if index == number]
        assert "".join(piece.text for piece in mine) == whole.outputs[0].text
        assert [token_id for piece in mine for token_id in piece.token_ids] == whole.outputs[0].token_ids
        assert len(mine) == len(whole.outputs[0].token_ids)


def test_a_stop_string_ends_the_text_before_it(llm):
    (output,) = llm.generate("The capital of France is", SamplingParams(temperature=0, max_tokens=12, stop=("ari",)))
    completion = output.outputs[0]
    assert (completion.text, completion.finish_reason, completion.stop_reason) == (" P", "stop", "ari")


def test_logprobs_come_per_token_with_the_sampled_one_first(llm):
    (output,) = llm.generate("The capital of France is", SamplingParams(temperature=0, max_tokens=3, logprobs=2))
    completion = output.outputs[0]
    assert [next(iter(entry)) for entry in completion.logprobs] == completion.token_ids
    first = completion.logprobs[0][completion.token_ids[0]]
    assert (first.rank, first.decoded_token) == (1, " Paris")
    assert all(2 <= len(entry) <= 3 for entry in completion.logprobs)
    sampled = [entry[token] for entry, token in zip(completion.logprobs, completion.token_ids, strict=True)]
    assert completion.cumulative_logprob == pytest.approx(sum(entry.logprob for entry in sampled))


def test_a_conversation_is_answered_and_its_next_turn_finds_it_in_the_cache(llm):
    messages = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
    (first,) = llm.chat(messages, GREEDY)
    assert "Paris" in first.outputs[0].text
    messages += [{"role": "assistant", "content": first.outputs[0].text}, {"role": "user", "content": "And of Italy?"}]
    (second,) = llm.chat(messages, GREEDY)
    assert second.num_cached_tokens >= 32
    assert "Rome" in second.outputs[0].text


def test_a_seed_of_its_own_gives_the_same_text_again(llm):
    params = SamplingParams(temperature=1.0, seed=5, max_tokens=4)
    texts = [llm.generate("Once upon a time", params)[0].outputs[0].text for _ in range(2)]
    assert texts[0] == texts[1]


def test_an_event_loop_reads_the_same_texts_from_a_process_of_its_own(llm):
    prompts = ["Write an emoji: 😀", "1 2 3 4", "The capital of France is"]
    messages = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
    outputs = [output for prompt in prompts for output in llm.generate(prompt, GREEDY)] + llm.chat(messages, GREEDY)
    expected = [output.outputs[0].text for output in outputs]

    async def text(stream):
        return "".join([output.outputs[0].text async for output in stream])

    async def main():
        async with AsyncLLM(max_model_len=256, kv_cache_memory="64MiB") as async_llm:
            delta = RequestOutputKind.DELTA
            streams = [async_llm.generate(prompt, GREEDY, output_kind=delta) for prompt in prompts]
            # one after another, as above: in bfloat16 the size of the batch may change a token
            return [await text(stream) for stream in [*streams, async_llm.chat(messages, GREEDY, output_kind=delta)]]

    assert asyncio.run(main()) == expected
