"""The front end on the real engine core, with the oracle in place of a model."""

import pytest

from enginecore import LLM, SamplingParams
from enginecore.clock import VirtualClock
from enginecore.errors import InvalidRequestError
from enginecore.plugin import Component

PROMPTS = [[7] * 40, [1, 2, 3], [*range(60)], [9]]


def broken_tokenizer(settings, context):
    raise AssertionError("the tokenizer was loaded")


def make(**settings):
    """An LLM that fails as soon as anybody asks for text."""
    tokenizer = Component(kind="tokenizer", name="broken", factory=broken_tokenizer)
    settings = {
        "executor": {"use": "oracle", "oracle": {"vocab_size": 100, "max_model_len": 256}},
        "tokenization": {"use": "broken"},
        "debug": {"check_invariants": True},
        "num_kv_blocks": 64,
        **settings,
    }
    return LLM(components=[tokenizer], **settings)


def params(**changes):
    return SamplingParams(**{"detokenize": False, "ignore_eos": True, "max_tokens": 8, **changes})


def token_ids(outputs):
    return [output.outputs[0].token_ids for output in outputs]


def test_token_ids_go_in_and_come_out_without_a_tokenizer():
    with make() as llm:
        outputs = llm.generate(PROMPTS, params())
    assert [len(ids) for ids in token_ids(outputs)] == [8, 8, 8, 8]
    assert [output.outputs[0].finish_reason for output in outputs] == ["length"] * 4
    assert [output.prompt_token_ids for output in outputs] == PROMPTS


def test_a_batch_gives_what_its_prompts_give_alone():
    with make(enable_prefix_caching=False) as llm:
        together = token_ids(llm.generate(PROMPTS, params(temperature=0)))
        assert together == [token_ids(llm.generate(prompt, params(temperature=0)))[0] for prompt in PROMPTS]


def test_unseeded_requests_are_repeated_by_an_engine_of_the_same_seed():
    runs = []
    for seed in (1, 1, 2):
        with make(seed=seed) as llm:
            runs.append(token_ids(llm.generate(PROMPTS, params())))
    assert runs[0] == runs[1] != runs[2]


def test_cached_tokens_are_reported_until_the_cache_is_reset():
    with make() as llm:
        cached = [llm.generate(PROMPTS[0], params())[0].num_cached_tokens for _ in range(2)]
        assert llm.reset_prefix_cache() is True
        cached.append(llm.generate(PROMPTS[0], params())[0].num_cached_tokens)
    assert cached == [0, 32, 0]


@pytest.mark.parametrize("max_tokens", [0, 1, None])
def test_output_lengths_at_the_edges(max_tokens):
    with make(max_model_len=64) as llm:
        (output,) = llm.generate([5] * 60, params(max_tokens=max_tokens))
    assert len(output.outputs[0].token_ids) == (4 if max_tokens is None else max_tokens)
    assert output.outputs[0].finish_reason == "length"


def test_a_stop_token_ends_a_request_and_is_named():
    with make() as llm:
        ids = token_ids(llm.generate([7, 8], params(temperature=0)))[0]
        (output,) = llm.generate([7, 8], params(temperature=0, stop_token_ids=[ids[2]]))
    completion = output.outputs[0]
    assert (completion.token_ids, completion.finish_reason, completion.stop_reason) == (ids[:3], "stop", ids[2])


def test_a_stream_left_early_leaves_the_engine_empty():
    with make() as llm:
        stream = llm.stream(PROMPTS, params(max_tokens=100))
        next(stream)
        stream.close()
        assert token_ids(llm.generate(PROMPTS[1], params()))[0]
        assert llm.reset_prefix_cache() is True


def test_limits_are_those_that_the_engine_core_found():
    with make(max_model_len="auto", num_kv_blocks=None, kv_cache_memory=48 * 8) as llm:
        limit = llm.info.max_model_len
        assert limit < 256
        with pytest.raises(InvalidRequestError, match=f"has {limit} tokens and may have {limit - 1}"):
            llm.generate([5] * limit, params())
        assert len(llm.generate([5] * (limit - 1), params())) == 1


def test_metrics_are_read_from_the_clock_that_was_given():
    executor = {"use": "oracle", "oracle": {"vocab_size": 100, "max_model_len": 256, "step_time": 0.5}}
    with make(executor=executor, clock=VirtualClock()) as llm:
        (output,) = llm.generate([1, 2, 3], params(max_tokens=3))
    metrics = output.metrics
    assert (metrics.time_to_first_token, metrics.e2e_latency, metrics.time_per_output_token) == (0.5, 1.5, 0.5)
