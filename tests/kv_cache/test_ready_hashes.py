"""Requests that bring the hashes of their blocks: nothing else is looked up or published for them."""

import pytest

from enginecore.kv_cache import BlockPoolManager
from enginecore.messages import EngineCoreRequest
from enginecore.request import Request
from enginecore.sampling import SamplingParams
from tests.kv_cache.making import MANAGERS, admit, allocate, make_manager, make_request, serve

SIZE = 4


def ready(request_id: str, num_tokens: int, hashes: list[bytes], **fields) -> Request:
    params = SamplingParams(max_tokens=None)
    message = EngineCoreRequest(request_id=request_id, prompt_token_ids=[0] * num_tokens, params=params, **fields)
    return Request(message, params, arrival_number=0, arrival_time=0.0, max_model_len=1 << 20, block_hashes=hashes)


@pytest.fixture(params=MANAGERS)
def manager(request) -> BlockPoolManager:
    return make_manager(8, SIZE, request.param)


def test_equal_hashes_are_hit_whatever_the_tokens_are(manager):
    assert serve(manager, ready("a", 9, [b"one", b"two"])) == 0
    assert serve(manager, ready("b", 9, [b"one", b"two"])) == 8
    assert serve(manager, ready("c", 9, [b"one", b"three"])) == 4
    assert serve(manager, ready("d", 9, [b"four", b"five"])) == 0
    assert serve(manager, ready("e", 8, [b"one", b"two"])) == 4  # the last token is always computed


def test_blocks_without_a_hash_are_neither_hit_nor_published(manager):
    for name in "ab":
        request = ready(name, 9, [])
        assert serve(manager, request) == 0
        assert request.block_hashes == []
    assert manager.get_stats().num_cached_blocks == 0
    assert serve(manager, ready("c", 17, [b"one"])) == 0
    assert serve(manager, ready("d", 17, [b"one"])) == 4
    assert manager.get_stats().num_cached_blocks == 1


def test_blocks_of_generated_tokens_are_published_only_if_a_hash_says_what_they_hold(manager):
    for hashes, num_cached in ([b"one"], 1), ([b"one", b"two"], 2):
        request = ready("a", 5, hashes)
        admit(manager, request)
        for _ in range(7):
            request.append([0])
        allocate(manager, request, 12)
        manager.cache_blocks(request, 12)
        manager.check_invariants()
        manager.free(request)
        assert manager.get_stats().num_cached_blocks == num_cached
    assert serve(manager, ready("b", 13, [b"one", b"two", b"three"])) == 8


def test_who_skips_the_cache_neither_reads_nor_feeds_it(manager):
    assert serve(manager, ready("a", 9, [b"one", b"two"], skip_prefix_cache=True)) == 0
    assert serve(manager, ready("b", 9, [b"one", b"two"])) == 0
    assert serve(manager, ready("c", 9, [b"one", b"two"], skip_prefix_cache=True)) == 0


def test_they_are_told_from_tokens(manager):
    assert serve(manager, make_request([0] * 9)) == 0
    assert serve(manager, ready("a", 9, [b"one", b"two"])) == 0
    assert serve(manager, make_request([0] * 9)) == 8
    assert serve(manager, ready("b", 9, [b"one", b"two"])) == 8
