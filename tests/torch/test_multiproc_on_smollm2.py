"""SmolLM2, whose three KV groups do not divide by two, on several ranks: the tokens of `single`, in float32."""

from typing import Any

import pytest

from enginecore import LLM, SamplingParams

pytestmark = pytest.mark.model

RIVER = (
    "The river rises in the hills north of the town, passes under seven bridges, and reaches the sea after forty "
    "miles. Along its banks people have built mills, then factories, then parks."
)
TEXTS = [RIVER, "def fibonacci(n):", "The capital of France is", RIVER[:80], RIVER]
SETTINGS: dict[str, Any] = {
    "dtype": "float32", "max_model_len": 96, "num_kv_blocks": 12, "block_size": 8, "max_num_batched_tokens": 96,
    "max_num_seqs": 3, "scheduler": {"fcfs": {"prefill_chunk_size": 16}},
}  # fmt: skip


def run(executor):
    params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, detokenize=False)
    with LLM(**SETTINGS, executor=executor) as llm:
        outputs = llm.generate(TEXTS, params, use_tqdm=False)
        return [output.outputs[0].token_ids for output in outputs], llm.get_stats()


@pytest.fixture(scope="module")
def expected():
    return run({"use": "single", "single": {"num_threads": 1}})[0]


@pytest.mark.parametrize(
    ("tensor", "pipeline"),
    [
        (2, 1),
        pytest.param(1, 2, marks=pytest.mark.full),
        pytest.param(2, 2, marks=pytest.mark.full),
        pytest.param(4, 1, marks=pytest.mark.full),
    ],
)
def test_tokens_equal_those_of_single(expected, tensor, pipeline):
    multiproc = {
        "tensor_parallel_size": tensor, "pipeline_parallel_size": pipeline, "num_threads": 1, "overlap": "on",
    }  # fmt: skip
    tokens, stats = run({"use": "multiproc", "multiproc": multiproc})
    assert tokens == expected
    assert stats.prefix_cache_hits > 0
    assert stats.num_preemptions > 0
