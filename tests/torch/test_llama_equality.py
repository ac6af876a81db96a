"""Greedy tokens and logits equal those of transformers, however the work is cut."""

import random
from typing import Any

import pytest
import torch

from enginecore.sampling import SamplingParams
from tests.torch.tiny import Driver, hf_greedy, make_executor, make_hf_model, make_source

SHAPES: dict[str, dict[str, Any]] = {
    "grouped": {},
    "multi_head": {"num_key_value_heads": 6},
    "one_kv_head": {"num_key_value_heads": 1},
    "tied": {"tie_word_embeddings": True},
    "wide_heads": {"head_dim": 24},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "one_layer": {"num_hidden_layers": 1},
    "odd_sizes": {
        "hidden_size": 42, "intermediate_size": 77, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 14,
    },
    "llama3_rope": {
        "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 40,
        }
    },
}  # fmt: skip
BACKENDS = ("torch", "native")


def prompt_of(length, seed=0):
    return [random.Random(seed * 1000 + length).randrange(3, 200) for _ in range(length)]


def shuffled_blocks(count, seed=0):
    blocks = list(range(count))
    random.Random(seed).shuffle(blocks)
    return blocks


@pytest.fixture(params=BACKENDS)
def backend(request):
    return {"attention": request.param, "settings": {"ops": request.param}}


def driver_for(model, backend, block_size=8, **changes):
    executor = make_executor(make_source(model), block_size=block_size, **backend, **changes)
    return Driver(executor, shuffled_blocks(64), block_size)


@pytest.mark.parametrize("shape", SHAPES)
def test_tokens_equal_transformers(shape, backend):
    model = make_hf_model(**SHAPES[shape])
    driver = driver_for(model, backend)
    for length in (1, 7, 8, 9, 40):
        driver.add(f"r{length}", prompt_of(length))
        assert driver.generate(f"r{length}", 12) == hf_greedy(model, prompt_of(length), 12)


@pytest.mark.parametrize("shape", SHAPES)
def test_logprobs_of_a_prompt_equal_transformers(shape, backend):
    model = make_hf_model(**SHAPES[shape])
    driver = driver_for(model, backend)
    prompt = prompt_of(33)
    driver.add("r", prompt, SamplingParams(temperature=0, seed=0, logprobs=20))
    entry = driver.step({"r": 33}).logprobs["r"][0]
    with torch.inference_mode():
        expected = model(torch.tensor([prompt])).logits[0, -1].log_softmax(-1)
    torch.testing.assert_close(torch.tensor(entry.logprobs), expected[entry.token_ids], atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("block_size", [1, 8, 16, 32])
@pytest.mark.parametrize("chunk", [1, 5, 8, 17])
def test_chunked_prefill_changes_nothing(block_size, chunk, backend):
    model = make_hf_model()
    driver = driver_for(model, backend, block_size, num_blocks=64)
    driver.add("r", prompt_of(37))
    assert driver.generate("r", 8, chunk) == hf_greedy(model, prompt_of(37), 8)


def test_a_shared_prefix_is_read_from_the_blocks_of_another_request(backend):
    """Field cases 34 and 54."""
    model = make_hf_model()
    driver = driver_for(model, backend)
    prefix = prompt_of(24)
    driver.add("first", [*prefix, 5])
    driver.generate("first", 3)
    driver.add("second", [*prefix, 9, 9, 4])
    driver.share("second", "first", 24)
    assert driver.left("second") == 3
    assert driver.generate("second", 6) == hf_greedy(model, [*prefix, 9, 9, 4], 6)
    assert driver.generate("first", 6) == hf_greedy(model, [*prefix, 5], 6)


def test_a_prefix_shared_within_one_step_is_written_before_it_is_read(backend):
    """Field case 41."""
    model = make_hf_model()
    driver = driver_for(model, backend)
    prefix = prompt_of(16)
    driver.add("first", [*prefix, 5])
    driver.blocks["first"] = [driver.free.pop(0) for _ in range(3)]
    driver.add("second", [*prefix, 9])
    driver.share("second", "first", 16)
    driver.step({"second": 1, "first": 17})  # the reader stands first in the batch
    assert driver.output("second") == hf_greedy(model, [*prefix, 9], 1)


def test_mixed_batches_in_any_order_give_each_request_its_own_tokens(backend):
    model = make_hf_model()
    driver = driver_for(model, backend)
    lengths = {"a": 3, "b": 30, "c": 8, "d": 17, "e": 1}
    rng = random.Random(3)
    for name, length in lengths.items():
        driver.add(name, prompt_of(length))
    mixed = 0
    while any(len(driver.output(name)) < 10 for name in lengths):
        names = rng.sample(sorted(lengths), rng.randrange(1, 6))
        counts = {name: rng.randrange(1, driver.left(name) + 1) for name in names}
        mixed += min(counts.values()) == 1 and max(counts.values()) > 1
        driver.step(counts)
    assert mixed > 2
    for name, length in lengths.items():
        assert driver.output(name)[:10] == hf_greedy(model, prompt_of(length), 10)


@pytest.mark.parametrize("resumed_with", [4, 1000])
def test_a_preempted_request_resumes_with_all_its_tokens(resumed_with, backend):
    model = make_hf_model()
    driver = driver_for(model, backend)
    driver.add("a", prompt_of(13))
    driver.add("b", prompt_of(9))
    driver.generate("a", 5)
    driver.generate("b", 2)
    driver.finish("a", preempted=True)
    driver.generate("b", 6)  # may take over blocks of "a"
    assert driver.generate("a", 11, resumed_with) == hf_greedy(model, prompt_of(13), 11)
    assert driver.generate("b", 9) == hf_greedy(model, prompt_of(9), 9)


def test_bfloat16_follows_float32(backend):
    model = make_hf_model(initializer_range=0.1)
    prompt = prompt_of(40)
    driver = driver_for(model, backend, dtype="bfloat16")
    driver.add("r", prompt, SamplingParams(temperature=0, seed=0, logprobs=20))
    first = driver.step({"r": 30})
    assert first.request_ids == []
    entry = driver.step({"r": 10}).logprobs["r"][0]
    with torch.inference_mode():
        expected = model(torch.tensor([prompt])).logits[0, -1].log_softmax(-1)
    torch.testing.assert_close(torch.tensor(entry.logprobs), expected[entry.token_ids], atol=0.15, rtol=0.05)
