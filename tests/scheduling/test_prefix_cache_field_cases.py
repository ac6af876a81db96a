"""Field cases of the prefix cache, by number, seen from outside: tokens, hits and blocks of whole requests."""

from itertools import permutations

import msgspec
import pytest

from enginecore.messages import EngineCoreRequest, FinishReason
from tests.scheduling.harnesses import MANAGERS, make_harness, make_request, terminal_of

DEPTHS = [
    pytest.param({}, id="1"),
    pytest.param({"depth": 2}, id="2"),
    pytest.param({"depth": 4, "feeds_tokens": True}, id="4"),
]


@pytest.fixture(params=MANAGERS)
def manager(request):
    return request.param


def serve(harness, *requests: EngineCoreRequest):
    """Run these to their end; how many tokens of each were found in the cache. Every token is checked, too."""
    for request in requests:
        harness.add(request)
    harness.run()
    return [harness.transcript[request.request_id].num_cached_tokens for request in requests]


# -- 34: all of the prompt is cached --


@pytest.mark.parametrize("oracle", DEPTHS)
@pytest.mark.parametrize("max_tokens", [1, 6])
@pytest.mark.parametrize(("length", "hit"), [(7, 4), (8, 4), (9, 8)])
def test_34_a_prompt_sent_again_computes_its_last_token_and_goes_on_alike(manager, length, hit, max_tokens, oracle):
    harness = make_harness(manager=manager, oracle=oracle)
    sent = [serve(harness, make_request(f"r{n}", length, max_tokens=max_tokens)) for n in range(3)]
    assert sent == [[0], [hit], [hit]]
    tokens = [story.token_ids for story in harness.transcript.stories]
    assert tokens[0] == tokens[1] == tokens[2]
    firsts = [next(iter(plan.num_scheduled_tokens.values())) for plan in harness.plans if plan.new_requests]
    assert firsts == [length, length - hit, length - hit]


# -- 35: a block that holds something else by now --


@pytest.mark.parametrize("oracle", DEPTHS)
def test_35_nobody_is_given_blocks_of_what_was_overwritten(manager, oracle):
    harness = make_harness(manager=manager, num_blocks=3, oracle=oracle)
    one, other = range(1, 13), range(101, 113)
    assert serve(harness, make_request("x", one, max_tokens=1)) == [0]
    assert serve(harness, make_request("y", other, max_tokens=1)) == [0]
    assert serve(harness, make_request("x again", one, max_tokens=1)) == [0]
    assert serve(harness, make_request("x once more", one, max_tokens=1)) == [8]


# -- 41: blocks that were never written, or nobody knows whether they were --


@pytest.mark.parametrize("oracle", DEPTHS)
def test_41_what_was_aborted_with_its_first_step_in_flight_is_not_hit(manager, oracle):
    harness = make_harness(manager=manager, oracle=oracle)
    harness.add(make_request("aborted", 12))
    assert harness.submit()
    harness.abort(["aborted"])
    assert serve(harness, make_request("again", 12, max_tokens=3)) == [0]


@pytest.mark.parametrize("oracle", DEPTHS)
@pytest.mark.parametrize("kind", ["drop", "error"])
def test_41_what_failed_in_its_first_step_is_not_hit(manager, kind, oracle):
    faults = [{"kind": kind, "request_id": "failed", "step": 0}]
    harness = make_harness(manager=manager, oracle={**oracle, "faults": faults})
    serve(harness, make_request("failed", 12))
    assert terminal_of(harness, "failed").finish_reason is FinishReason.ERROR
    assert serve(harness, make_request("again", 12, max_tokens=3)) == [0]


# -- 42: one prefix twice --


@pytest.mark.parametrize("order", list(permutations((1, 3, 6))))
def test_42_equal_prompts_of_one_step_end_in_any_order(manager, order):
    harness = make_harness(manager=manager, max_num_batched_tokens=64)
    equal = [make_request(f"r{n}", 12, max_tokens=count) for n, count in enumerate(order)]
    assert serve(harness, *equal) == [0, 0, 0]
    assert len(harness.plans[0].num_scheduled_tokens) == 3
    assert serve(harness, make_request("later", 13, max_tokens=1)) == [12]


# -- 44: whose prompt it is --


def test_44_a_hit_needs_the_same_salt(manager):
    harness = make_harness(manager=manager)
    salts = [None, "X", "Y", ""]
    first = [serve(harness, make_request(f"first {salt!r}", 12, salt=salt)) for salt in salts]
    again = [serve(harness, make_request(f"again {salt!r}", 12, salt=salt)) for salt in salts]
    assert (first, again) == ([[0]] * 4, [[8]] * 4)
    assert serve(harness, make_request("stranger", 12, salt="Z")) == [0]


# -- 51: lengths around a block, and blocks of odd sizes --


@pytest.mark.parametrize("oracle", DEPTHS)
@pytest.mark.parametrize("block_size", [1, 4, 64])
def test_51_lengths_around_a_block_in_blocks_of_any_size(manager, block_size, oracle):
    harness = make_harness(manager=manager, block_size=block_size, max_model_len=32, oracle=oracle)
    for length in (1, 3, 4, 5, 8, 9):
        start = length * 20  # not a prefix of the next one
        requests = [make_request(f"{length} {n}", range(start, start + length), max_tokens=5) for n in range(2)]
        hits = [serve(harness, request) for request in requests]
        assert hits == [[0], [(length - 1) // block_size * block_size]]


# -- 52: what is counted --


def test_52_a_hit_is_counted_when_the_request_is_admitted_however_often_it_was_tried(manager):
    harness = make_harness(manager=manager, num_blocks=8)
    serve(harness, make_request("first", 9, max_tokens=1))
    harness.add(make_request("holder", range(100, 120), max_tokens=4))  # five blocks, later six
    harness.step()
    harness.add(make_request("again", [*range(1, 10), *range(50, 60)], max_tokens=1))  # five, two of them cached
    for _ in range(2):
        harness.step()
        assert harness.scheduler.get_stats().prefix_cache_hits == 0
    harness.run()
    stats = harness.scheduler.get_stats()
    assert (stats.prefix_cache_queries, stats.prefix_cache_hits) == (9 + 20 + 19, 8)


def test_52_an_idle_pool_is_free_whatever_is_cached_in_it(manager):
    harness = make_harness(manager=manager, num_blocks=120)
    for n in range(50):
        serve(harness, make_request(f"r{n}", range(n * 4, n * 4 + 10), max_tokens=1))
    stats = harness.scheduler.get_stats()
    assert (stats.num_free_blocks, stats.num_cached_blocks) == (120, 100)


# -- 53: a request that leaves the cache alone --


@pytest.mark.parametrize("oracle", DEPTHS)
def test_53_a_request_that_skips_the_cache_gets_through_its_prompt_in_chunks(manager, oracle):
    harness = make_harness(manager=manager, max_num_batched_tokens=8, oracle=oracle)
    skipping = [
        msgspec.structs.replace(make_request(f"skips {n}", 30, max_tokens=3), skip_prefix_cache=True) for n in range(2)
    ]
    assert [serve(harness, request) for request in skipping] == [[0], [0]]
    assert sum(sum(plan.num_scheduled_tokens.values()) for plan in harness.plans) == 2 * (30 + 2)
    assert serve(harness, make_request("reads", 30, max_tokens=1)) == [0]
    assert harness.scheduler.get_stats().prefix_cache_queries == 30
