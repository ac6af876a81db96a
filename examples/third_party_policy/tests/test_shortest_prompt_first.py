"""The contract, by the kit; the policy alone; and an engine with it on the oracle executor, which needs no model."""

from types import SimpleNamespace

import pytest
from shortest_prompt_first import COMPONENT, ShortestPromptFirst

from enginecore import LLM, SamplingParams
from enginecore.clock import VirtualClock
from enginecore.errors import ConfigurationError
from enginecore_conformance import parametrize


@parametrize(COMPONENT)
def test_contract(check):
    check()


def order(policy, **requests):
    """Names of requests, given as (prompt tokens, arrival), in the order in which they go."""
    views = {name: SimpleNamespace(num_prompt_tokens=n, arrival=t) for name, (n, t) in requests.items()}
    return sorted(views, key=lambda name: policy.rank(views[name], None))


def test_short_prompts_go_first():
    assert order(ShortestPromptFirst(), long=(500, 0.0), short=(5, 0.0), middle=(50, 0.0)) == [
        "short",
        "middle",
        "long",
    ]


def test_a_long_prompt_that_has_waited_goes_before_a_short_new_one():
    assert order(ShortestPromptFirst(100.0), long=(500, 0.0), short=(5, 4.9)) == ["short", "long"]
    assert order(ShortestPromptFirst(100.0), long=(500, 0.0), short=(5, 5.0)) == ["long", "short"]


def test_without_ageing_the_length_alone_decides():
    assert order(ShortestPromptFirst(0.0), long=(500, 0.0), short=(5, 1e6)) == ["short", "long"]


def engine(**settings):
    scheduler = {"use": "shortest-prompt-first", "shortest-prompt-first": settings}
    return LLM(scheduler=scheduler, executor={"use": "oracle"}, max_num_seqs=1, clock=VirtualClock())


def test_the_engine_finishes_requests_in_that_order():
    prompts = [[7] * 40, [8] * 3, [9] * 20]
    with engine() as llm:
        for number, prompt in enumerate(prompts):
            llm.llm_engine.add_request(
                str(number),
                {"prompt_token_ids": prompt},
                SamplingParams(max_tokens=4, ignore_eos=True, detokenize=False),
            )
        finished = []
        while llm.llm_engine.has_unfinished_requests():
            finished += [output.request_id for output in llm.llm_engine.step() if output.finished]
    assert finished == ["1", "2", "0"]


def test_a_wrong_setting_is_refused():
    with pytest.raises(ConfigurationError, match="tokens_per_second"):
        engine(tokens_per_second=-1.0)
