"""The contract, by the kit; and an engine with it on the oracle executor, whose tokens tell if anything went wrong."""

import pytest
from plain_fcfs import COMPONENT

from enginecore import LLM, SamplingParams
from enginecore.clock import VirtualClock
from enginecore.errors import ConfigurationError
from enginecore_conformance import parametrize

PROMPTS = [{"prompt_token_ids": [7] * (5 * number % 40 + 8) + [number] * 8} for number in range(16)]
PARAMS = [SamplingParams(max_tokens=20 + number, detokenize=False, seed=number) for number in range(16)]
TIGHT = {"block_size": 8, "num_kv_blocks": 24, "max_model_len": 128, "max_num_seqs": 8, "max_num_batched_tokens": 32}


@parametrize(COMPONENT)
def test_contract(check):
    check()


def run(scheduler, *, oracle=(), **settings):
    """Tokens of every request, and what the engine counted."""
    with LLM(
        executor={"use": "oracle", "oracle": dict(oracle)},
        scheduler=scheduler,
        clock=VirtualClock(),
        debug={"check_invariants": True},
        **(TIGHT | settings),
    ) as llm:
        outputs = llm.generate(PROMPTS, PARAMS, use_tqdm=False)
        return [output.outputs[0].token_ids for output in outputs], llm.get_stats()


@pytest.mark.parametrize("feeds_tokens", [True, False])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_the_tokens_are_those_of_any_scheduler(depth, feeds_tokens):
    oracle = {"depth": depth, "feeds_tokens": feeds_tokens, "step_time": 0.01}
    tokens, stats = run({"use": "plain-fcfs"}, oracle=oracle)
    roomy, undisturbed = run({"use": "fcfs"}, num_kv_blocks=400, enable_prefix_caching=False)
    assert tokens == roomy
    assert (stats.num_preemptions > 0, stats.prefix_cache_hits > 0) == (True, True)
    assert (undisturbed.num_preemptions, undisturbed.prefix_cache_hits) == (0, 0)


def test_prompts_may_have_to_stay_whole():
    tokens, _ = run({"use": "plain-fcfs"}, enable_chunked_prefill=False, max_num_batched_tokens=128)
    assert tokens == run({"use": "fcfs"})[0]


def test_a_reserve_spares_preemptions():
    preemptions = [
        run({"use": "plain-fcfs", "plain-fcfs": {"reserved_blocks": blocks}})[1].num_preemptions
        for blocks in (0, 4, 24)
    ]
    assert preemptions[0] > preemptions[1] > preemptions[2] == 0


def test_what_it_does_not_declare_is_refused_at_start_up():
    with pytest.raises(ConfigurationError, match="does not declare 'out_of_order'"):
        run({"use": "plain-fcfs"}, oracle={"in_order": False})
    with pytest.raises(ConfigurationError, match="scheduler 'plain-fcfs' decides that itself"):
        run({"use": "plain-fcfs"}, victim={"use": "largest"})
