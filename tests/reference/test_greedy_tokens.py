"""Greedy tokens of SmolLM2 in float32 equal those of `transformers`, whatever the engine does to get them."""

import asyncio
import random
from typing import Any

import pytest

from enginecore import LLM, AsyncLLM, SamplingParams
from enginecore.frontend.outputs import RequestOutputKind
from enginecore.messages import SchedulerStats
from tests.reference.conftest import Greedy

pytestmark = pytest.mark.model

TEXT = (
    "The river rises in the hills north of the town, passes under seven bridges, and reaches the sea after forty "
    "miles. Along its banks people have built mills, then factories, then parks. In spring, when the snow melts, the "
    "water is high and brown; by late summer children can wade across it. Nobody remembers who gave it its name. "
)
CODE = "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) + fibonacci(n - 2)\n\n"
COUNT = 12


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Six prompts of 1 to 300 tokens; two of them share their first 200."""
    with LLM(num_kv_blocks=8, max_model_len=64, dtype="float32") as llm:
        encode = llm.get_tokenizer().encode
        long = encode(TEXT * 5)
        code = encode(CODE * 9)
        return [
            encode("Once"),
            encode("The capital of France is"),
            code[:97],
            long[:200],
            long[:300],
            long[:200] + code[:64],
        ]


@pytest.fixture(scope="module")
def expected(greedy: Greedy, prompts: list[list[int]]) -> list[list[int]]:
    return [greedy(prompt, COUNT) for prompt in prompts]


def run(prompts: list[list[int]], count: int, **settings: Any) -> tuple[list[list[int]], list[int], SchedulerStats]:
    """Tokens, cached prompt tokens, and what the scheduler counted."""
    params = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False)
    with LLM(dtype="float32", **settings) as llm:
        outputs = llm.generate(prompts, params, use_tqdm=False)
        stats = llm.get_stats()
    return [list(o.outputs[0].token_ids) for o in outputs], [o.num_cached_tokens for o in outputs], stats


ROOMY: dict[str, Any] = {"max_model_len": 512, "kv_cache_memory": "512MiB"}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_num_batched_tokens": 64},
        {"max_num_batched_tokens": 512, "enable_chunked_prefill": False},
        {"block_size": 8, "scheduler": {"fcfs": {"prefill_chunk_size": 16}}},
        {"block_size": 32, "enable_prefix_caching": False},
        {"max_num_seqs": 1},
        {"transport": {"inproc": {"codec_round_trip": True}}},
        {"transport": {"use": "zmq"}},
    ],
    ids=[
        "whole",
        "budget 64",
        "not chunked",
        "blocks of 8 and pieces of 16",
        "blocks of 32 uncached",
        "one by one",
        "codec",
        "zmq",
    ],
)
def test_tokens_do_not_depend_on_how_they_are_computed(
    settings: dict[str, Any], prompts: list[list[int]], expected: list[list[int]]
) -> None:
    tokens, _, stats = run(prompts, COUNT, **{**ROOMY, **settings})
    assert tokens == expected
    assert stats.num_preemptions == 0
    if budget := settings.get("max_num_batched_tokens"):
        computed = sum(map(len, prompts)) - stats.prefix_cache_hits
        assert stats.step >= -(-computed // budget) + COUNT - 1, "prompts were split over steps"


def test_tokens_come_through_streams_of_an_event_loop(prompts: list[list[int]], expected: list[list[int]]) -> None:
    params = SamplingParams(temperature=0, max_tokens=COUNT, ignore_eos=True)

    async def read(llm: AsyncLLM, prompt: list[int]) -> tuple[list[int], str]:
        tokens, text = [], ""
        async for output in llm.generate(prompt, params, output_kind=RequestOutputKind.DELTA):
            tokens += output.outputs[0].token_ids
            text += output.outputs[0].text
        return tokens, text

    async def main() -> list[tuple[list[int], str]]:
        async with AsyncLLM(dtype="float32", **ROOMY) as llm:
            return await asyncio.gather(*(read(llm, prompt) for prompt in prompts))

    streams = asyncio.run(main())
    assert [tokens for tokens, _ in streams] == expected
    with LLM(dtype="float32", **ROOMY) as llm:
        outputs = llm.generate(prompts, params, use_tqdm=False)
    assert [text for _, text in streams] == [output.outputs[0].text for output in outputs]


@pytest.mark.parametrize("block_size", [8, 16])
def test_tokens_do_not_depend_on_what_is_cached(
    block_size: int, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    tokens, cached, _ = run([*prompts, *prompts], COUNT, **ROOMY, block_size=block_size, max_num_seqs=1)
    assert tokens == [*expected, *expected]
    assert cached[5] == 200 // block_size * block_size
    assert cached[6:] == [(len(prompt) - 1) // block_size * block_size for prompt in prompts]


@pytest.mark.parametrize("caching", [True, False])
def test_tokens_do_not_depend_on_preemptions(
    caching: bool, prompts: list[list[int]], expected: list[list[int]], greedy: Greedy
) -> None:
    count = 40
    tokens, _, stats = run(
        [*prompts[:3], *prompts[:3]],
        count,
        max_model_len=152,
        num_kv_blocks=19,
        block_size=8,
        enable_prefix_caching=caching,
    )
    assert tokens == [greedy(prompt, count) for prompt in prompts[:3]] * 2
    assert stats.num_preemptions > 0


@pytest.mark.full
def test_thirty_two_prompts_of_up_to_1500_tokens(greedy: Greedy) -> None:
    draw = random.Random(0)
    lengths = [1, 2, 15, 16, 17, 1500, *(draw.randrange(1, 1500) for _ in range(26))]
    with LLM(num_kv_blocks=8, max_model_len=64, dtype="float32") as llm:
        text = llm.get_tokenizer().encode((TEXT + CODE) * 40)
    prompts = [text[(start := draw.randrange(1000)) : start + length] for length in lengths]
    tokens, _, _ = run(prompts, 16, max_model_len=1536, kv_cache_memory="2GiB", max_num_batched_tokens=1024)
    assert tokens == [greedy(prompt, 16) for prompt in prompts]
