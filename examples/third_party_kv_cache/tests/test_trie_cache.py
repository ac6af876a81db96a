"""The contracts, by the kit; what is this package's own; and engines with it, on the oracle executor."""

from types import SimpleNamespace

import pytest
from trie_cache import GREEDY_DUAL, TRIE
from trie_cache.greedy_dual import GreedyDual

from enginecore import LLM, SamplingParams
from enginecore.clock import VirtualClock
from enginecore_conformance import parametrize

PROMPTS = [{"prompt_token_ids": [7] * (8 * number % 48) + [number % 5] * 12} for number in range(24)]
PARAMS = SamplingParams(max_tokens=24, detokenize=False, seed=1)
TIGHT = {"block_size": 8, "num_kv_blocks": 24, "max_model_len": 128, "max_num_seqs": 4, "max_num_batched_tokens": 32}


@parametrize(TRIE)
def test_contract_of_managers(check):
    check()


@parametrize(GREEDY_DUAL)
def test_contract_of_evictions(check):
    check()


def run(manager, eviction, **settings):
    """Tokens of every request, and what the engine counted."""
    with LLM(
        executor={"use": "oracle"},
        kv_cache_manager={"use": manager},
        eviction={"use": eviction},
        clock=VirtualClock(),
        debug={"check_invariants": True},
        **(TIGHT | settings),
    ) as llm:
        outputs = llm.generate(PROMPTS, PARAMS, use_tqdm=False)
        assert llm.reset_prefix_cache()  # nobody holds a block any more
        return [output.outputs[0].token_ids for output in outputs], llm.get_stats()


@pytest.mark.parametrize("eviction", ["greedy-dual", "lru", "ttl"])
def test_it_gives_the_tokens_and_the_hits_of_other_managers(eviction):
    tokens, stats = run("trie", eviction)
    others, other_stats = run("paged", eviction)
    assert tokens == others
    assert stats == other_stats
    assert stats.prefix_cache_hits > 0
    assert stats.num_preemptions > 0


def test_without_prefix_caching_nothing_is_hit():
    tokens, stats = run("trie", "lru", enable_prefix_caching=False)
    assert stats.prefix_cache_hits == stats.prefix_cache_queries == 0
    assert tokens == run("trie", "lru")[0]


# -- greedy-dual --


class Content(SimpleNamespace):
    """As a manager has it: told apart by what it is, not by what it says."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__


def order_of(order, **contents):
    """Names of contents, given as (position, hits, last use), in the order in which they are given up."""
    names = {}
    for name, (position, num_hits, last_use) in contents.items():
        content = Content(position=position, num_hits=num_hits, last_use=last_use)
        names[content] = name
        order.add(content)
    return [names[order.pop()] for _ in contents]


def test_what_was_hit_often_stays():
    assert order_of(GreedyDual(), often=(0, 9, 1), never=(0, 0, 3), once=(0, 1, 2)) == ["never", "once", "often"]


def test_of_equals_the_one_not_used_for_longest_goes():
    assert order_of(GreedyDual(), late=(0, 1, 9), early=(0, 1, 2)) == ["early", "late"]


def test_what_costs_more_to_compute_stays():
    assert order_of(GreedyDual(0.02), deep=(50, 0, 1), shallow=(0, 0, 2)) == ["shallow", "deep"]
    assert order_of(GreedyDual(0.0), deep=(50, 0, 1), shallow=(0, 0, 2)) == ["deep", "shallow"]


def test_old_fame_fades():
    order = GreedyDual(0.0)
    famous = Content(position=0, num_hits=5, last_use=0)
    order.add(famous)
    given_up = []
    for use in range(1, 10):
        order.add(Content(position=0, num_hits=0, last_use=use))
        given_up.append(order.pop())
    assert given_up.index(famous) == 5
