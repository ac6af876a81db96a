"""Ranks that each hold a part of a model give the tokens and logits of the whole one."""

import random
from typing import Any

import pytest
import torch

from enginecore.sampling import SamplingParams
from enginecore_models.checkpoint import everything
from tests.torch.ranks import Ranks
from tests.torch.tiny import Driver, hf_greedy, make_executor, make_hf_model, make_source

BASE: dict[str, Any] = {"num_hidden_layers": 3}
SHAPES: dict[str, dict[str, Any]] = {
    "grouped": {},
    "multi_head": {"num_key_value_heads": 6},
    "one_kv_head": {"num_key_value_heads": 1},
    "tied": {"tie_word_embeddings": True},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "smollm": {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 72, "tie_word_embeddings": True},
    "odd_sizes": {
        "hidden_size": 45, "intermediate_size": 77, "num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": 14,
        "vocab_size": 97,
    },
}  # fmt: skip
LAYOUTS = [(2, 1), (1, 2), (2, 2), (3, 1), (1, 3), (4, 2)]


def prompt_of(length, seed=0):
    return [random.Random(seed * 1000 + length).randrange(3, 90) for _ in range(length)]


@pytest.fixture
def drivers():
    """Makes drivers of shared-out models, and stops their threads."""
    made = []

    def make(model, tensor, pipeline, **changes):
        made.append(Ranks(make_source(model), tensor, pipeline, **changes))
        return Driver(made[-1], range(64), 8)

    yield make
    for ranks in made:
        ranks.shutdown()


@pytest.mark.parametrize("shape", SHAPES)
def test_greedy_tokens_equal_those_of_the_whole_model(drivers, shape):
    model = make_hf_model(**{**BASE, **SHAPES[shape]})
    expected = {length: hf_greedy(model, prompt_of(length), 5) for length in (1, 19)}
    for tensor, pipeline in LAYOUTS:
        driver = drivers(model, tensor, pipeline)
        for length, tokens in expected.items():
            driver.add(f"r{length}", prompt_of(length))
            assert driver.generate(f"r{length}", 5, chunk=11) == tokens, (tensor, pipeline)


@pytest.mark.parametrize("backend", ["torch", "native"])
@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 1), (2, 2)])
def test_logprobs_equal_those_of_the_whole_model(drivers, tensor, pipeline, backend):
    model = make_hf_model(**BASE)
    params = SamplingParams(temperature=0, seed=0, logprobs=20)
    entries = []
    chosen: dict[str, Any] = {"attention": backend, "settings": {"ops": backend}}
    whole = Driver(make_executor(make_source(model), **chosen), range(64), 8)
    for driver in (whole, drivers(model, tensor, pipeline, **chosen)):
        driver.add("r", prompt_of(33), params)
        entries.append(driver.step({"r": 33}).logprobs["r"][0])
    assert entries[0].token_ids == entries[1].token_ids
    torch.testing.assert_close(
        torch.tensor(entries[0].logprobs), torch.tensor(entries[1].logprobs), atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 1), (1, 2), (2, 2)])
def test_sampled_tokens_equal_those_of_the_whole_model_in_mixed_batches(drivers, tensor, pipeline):
    model = make_hf_model(**BASE)
    params = {
        "greedy": SamplingParams(temperature=0, seed=0),
        "seeded": SamplingParams(temperature=0.9, seed=7, top_k=40),
        "late": SamplingParams(temperature=0, seed=0, min_tokens=20, max_tokens=40),
    }
    outputs = []
    for driver in (Driver(make_executor(make_source(model)), range(64), 8), drivers(model, tensor, pipeline)):
        for number, (name, wanted) in enumerate(params.items()):
            driver.add(name, prompt_of(5 + 6 * number), wanted)
            driver.step({name: 3})
        while any(len(driver.output(name)) < 10 for name in params):
            driver.step({name: driver.left(name) for name in params})
        driver.finish("greedy")
        driver.finish("seeded", preempted=True)
        driver.add("new", prompt_of(4))
        driver.blocks.pop("new", None)
        driver.step({"late": 1, "new": 4})
        for name in ("seeded", "late", "new"):
            driver.generate(name, 16)
        outputs.append([driver.output(name)[:16] for name in ("greedy", "seeded", "late", "new")])
    assert outputs[0] == outputs[1]


def test_a_token_that_comes_late_does_not_touch_the_slot_s_next_request(drivers):
    model = make_hf_model(**BASE)
    driver = drivers(model, 1, 2, max_num_seqs=1)
    driver.add("old", prompt_of(4))
    driver.step({"old": 4})
    late, driver.executor.sampled = driver.executor.sampled, []
    driver.finish("old")
    driver.add("new", prompt_of(9))
    driver.step({"new": 5})
    driver.executor.sampled = [*late, *driver.executor.sampled]
    assert driver.generate("new", 6) == hf_greedy(model, prompt_of(9), 6)


def test_a_request_without_usable_logits_ends_alone(drivers):
    model = make_hf_model(**BASE)
    with torch.no_grad():
        model.lm_head.weight[3] = float("nan")
    driver = drivers(model, 2, 1)
    driver.add("r", prompt_of(4))
    answer = driver.step({"r": 4})
    assert list(answer.errors) == ["r"]
    assert answer.sampled_token_ids == [[]]


@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 1), (1, 2), (3, 2)])
def test_no_rank_reads_more_than_its_share(tensor, pipeline):
    model = make_hf_model(**BASE, tie_word_embeddings=True)
    source = make_source(model)
    read: list[int] = []

    class Counting(type(source)):  # type: ignore[misc]
        def weights(self, dtype, part_of=everything):
            read.append(0)
            for name, tensor in source.weights(dtype, part_of):
                read[-1] += tensor.numel()
                yield name, tensor

    Ranks(Counting(source.config, source.tensors), tensor, pipeline).shutdown()
    sizes = {name: weight.numel() for name, weight in source.tensors.items()}
    table, norms = sizes["model.embed_tokens.weight"], sum(size for name, size in sizes.items() if "norm" in name)
    whole = sum(sizes.values()) - norms + (table if pipeline > 1 else 0)  # a tied head is read by two stages
    kv = sum(size for name, size in sizes.items() if "k_proj" in name or "v_proj" in name)
    assert whole <= sum(read) <= whole + tensor * norms + (kv if tensor > 2 else 0)
    layer = sum(size for name, size in sizes.items() if name.startswith("model.layers.0"))
    assert max(read) <= (layer * -(-3 // pipeline) * 1.1 + table) / tensor + norms + kv
