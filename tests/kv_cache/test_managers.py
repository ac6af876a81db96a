import itertools
from functools import partial

import pytest

from enginecore.clock import VirtualClock
from enginecore.errors import ConfigurationError, InvariantError
from enginecore.interfaces import CachedPrefix, KVCacheConfig
from enginecore.messages import BlockIds
from enginecore.plugin import KVCacheManagerContext
from enginecore_kv_cache import enginecore_components
from tests.kv_cache import making
from tests.kv_cache.making import MANAGERS, admit, allocate, make_request, serve

NOTHING: BlockIds = ([],)


@pytest.fixture(params=MANAGERS)
def make_manager(request):
    return partial(making.make_manager, manager=request.param)


@pytest.mark.parametrize("name", MANAGERS)
def test_the_plugin_offers_the_managers_with_the_contexts_limits(name):
    offered = {(found.kind, found.name): found for found in enginecore_components()}
    component = offered["kv_cache_manager", name]
    assert component.capabilities == {"eviction", "prefix_caching", "ready_hashes"}
    config = KVCacheConfig(5, 4, (("layer",),))
    for enabled, cached_tokens in ((True, 8), (False, 0)):
        context = KVCacheManagerContext(config=config, enable_prefix_caching=enabled, clock=VirtualClock())
        manager = component.factory(component.settings(), context)
        assert (manager.num_blocks, manager.block_size, manager.num_free_blocks) == (5, 4, 5)
        serve(manager, make_request(range(9)))
        assert serve(manager, make_request(range(9))) == cached_tokens


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (KVCacheConfig(4, 4, (("a",), ("b",))), "1 KV cache group, got 2"),
        (KVCacheConfig(4, 4, ()), "1 KV cache group, got 0"),
        (KVCacheConfig(0, 4, (("a",),)), "at least 1, got 0 and 4"),
        (KVCacheConfig(4, 0, (("a",),)), "at least 1, got 4 and 0"),
    ],
)
@pytest.mark.parametrize("manager", MANAGERS.values())
def test_a_cache_that_it_cannot_keep_is_refused(manager, config, message):
    with pytest.raises(ConfigurationError, match=message):
        manager(config)


def test_slots_are_added_when_the_blocks_held_do_not_suffice(make_manager):
    manager, request = make_manager(3), make_request(range(5))
    assert manager.get_block_ids(request) == NOTHING
    assert manager.allocate_slots(request, 5) == ([0, 1],)
    assert manager.allocate_slots(request, 8) == NOTHING
    assert manager.allocate_slots(request, 3) == NOTHING
    assert manager.num_blocks_to_allocate(request, 9) == 1
    assert manager.allocate_slots(request, 9) == ([2],)
    assert manager.get_block_ids(request) == ([0, 1, 2],)
    assert manager.num_freeable_blocks([request]) == 3


def test_slots_may_be_asked_for_beyond_the_tokens_that_are_known(make_manager):
    """A token that the executor feeds, and drafts, are written before anybody knows whether they are right."""
    manager, request = make_manager(4), make_request(range(7))
    assert manager.allocate_slots(request, request.num_tokens + 5) == ([0, 1, 2],)
    manager.cache_blocks(request, request.num_tokens)
    manager.check_invariants()
    other = make_request(range(12))
    assert manager.get_computed_blocks(other).num_tokens == 4
    manager.free(request)
    assert manager.num_free_blocks == 4


def test_all_slots_or_none(make_manager):
    manager, request = make_manager(3), make_request(range(20))
    assert manager.allocate_slots(request, 13) is None
    assert manager.num_free_blocks == 3
    assert manager.get_block_ids(request) == NOTHING
    allocate(manager, request, 12)
    assert manager.allocate_slots(request, 13) is None
    assert manager.num_free_blocks == 0
    manager.check_invariants()


def test_what_it_returns_is_the_callers(make_manager):
    manager, request = make_manager(3), make_request(range(12))
    added = allocate(manager, request, 4)
    manager.get_block_ids(request)[0].append(98)
    added.append(99)
    assert manager.get_block_ids(request) == ([0],)
    allocate(manager, request, 8)
    assert added == [0, 99]


def test_a_prefix_stands_first_among_the_blocks_that_are_added(make_manager):
    manager, request = make_manager(4), make_request(range(9))
    serve(manager, make_request(range(9)))
    prefix = manager.get_computed_blocks(request)
    added = allocate(manager, request, 9, prefix)
    assert prefix.num_tokens == 8
    assert added[:2] == prefix.block_ids[0]
    assert len(set(added)) == 3
    assert manager.get_block_ids(request) == (added,)


def test_a_prefix_that_was_evicted_meanwhile_is_refused(make_manager):
    manager, request, other = make_manager(3), make_request(range(9)), make_request(range(50, 62))
    serve(manager, make_request(range(9)))
    prefix = manager.get_computed_blocks(request)
    allocate(manager, other, 12)
    manager.free(other)
    with pytest.raises(InvariantError, match="valid until blocks are allocated"):
        allocate(manager, request, 9, prefix)
    assert manager.num_free_blocks == 3
    manager.check_invariants()


def test_anothers_prefix_is_refused(make_manager):
    manager, request = make_manager(4), make_request(range(1, 10))
    owner = make_request(range(9))
    serve(manager, owner)
    manager.get_computed_blocks(request)
    with pytest.raises(InvariantError, match="do not hold the prefix"):
        allocate(manager, request, 9, manager.get_computed_blocks(owner))


def test_a_request_with_blocks_cannot_bring_a_prefix(make_manager):
    manager, request = make_manager(4), make_request(range(9))
    admit(manager, request)
    with pytest.raises(InvariantError, match="holds blocks already"):
        allocate(manager, request, 12, CachedPrefix(NOTHING, 0))


def test_lookups_change_nothing(make_manager):
    manager = make_manager(3)
    serve(manager, make_request(range(8)))  # two blocks of content, the older one
    serve(manager, make_request(range(50, 54)))
    stats = manager.get_stats()
    older = make_request(range(9))
    for _ in range(3):
        assert manager.peek_cached_tokens(older) == 8
        assert manager.get_computed_blocks(older).num_tokens == 8
    assert manager.get_stats() == stats
    admit(manager, make_request(range(60, 64)))  # still evicts what was used least recently
    assert manager.peek_cached_tokens(older) == 4
    assert manager.peek_cached_tokens(make_request(range(50, 55))) == 4


@pytest.mark.parametrize(("length", "hit"), [(8, 4), (7, 4), (9, 8)])
def test_case_34_the_last_token_of_a_cached_prompt_is_computed(make_manager, length, hit):
    manager = make_manager(8)
    assert [serve(manager, make_request(range(length))) for _ in range(3)] == [0, hit, hit]
    # its copy of the last block, which it had to compute again, has not broken the chain
    assert manager.peek_cached_tokens(make_request(range(100))) == length // 4 * 4


def test_case_35_a_block_that_was_given_out_again_is_not_hit_for_what_it_held(make_manager):
    manager, first, second = make_manager(3), range(12), range(50, 62)
    assert serve(manager, make_request(first)) == 0
    assert serve(manager, make_request(second)) == 0
    assert manager.peek_cached_tokens(make_request(first)) == 0
    assert serve(manager, make_request(first)) == 0
    assert manager.peek_cached_tokens(make_request(second)) == 0
    assert manager.peek_cached_tokens(make_request(first)) == 8


def test_case_37_hits_that_somebody_holds_cost_no_free_block(make_manager):
    manager, holder, request = make_manager(4), make_request(range(8)), make_request(range(16))
    admit(manager, holder)
    manager.cache_blocks(holder, 8)
    prefix = manager.get_computed_blocks(request)
    assert prefix.num_tokens == 8
    assert manager.num_blocks_to_allocate(request, 16, prefix) == manager.num_free_blocks == 2
    assert manager.num_blocks_to_allocate(request, 17, prefix) == 3
    assert manager.allocate_slots(request, 17, prefix) is None
    allocate(manager, request, 16, prefix)
    assert manager.num_free_blocks == 0
    assert manager.num_freeable_blocks([request]) == 2
    assert manager.num_freeable_blocks([holder]) == 0


def test_case_37_free_hits_are_taken_out_of_the_free_blocks(make_manager):
    manager, request = make_manager(4), make_request(range(16))
    serve(manager, make_request(range(8)))
    prefix = manager.get_computed_blocks(request)
    assert prefix.num_tokens == 8
    assert manager.num_blocks_to_allocate(request, 16, prefix) == manager.num_free_blocks == 4
    assert manager.num_blocks_to_allocate(request, 17, prefix) == 5
    assert manager.allocate_slots(request, 17, prefix) is None
    assert (manager.num_free_blocks, manager.get_stats().num_cached_blocks) == (4, 2)
    allocate(manager, request, 16, prefix)
    assert manager.num_free_blocks == 0
    manager.check_invariants()


def test_case_38_a_prefix_loses_its_tail_first(make_manager):
    manager, prompt = make_manager(3), range(13)
    serve(manager, make_request(range(12)))
    hits = [manager.peek_cached_tokens(make_request(prompt))]
    for first in (100, 200, 300):
        holder = make_request([first])
        allocate(manager, holder, 1)
        hits.append(manager.get_computed_blocks(make_request(prompt)).num_tokens)
    assert hits == [12, 8, 4, 0]


def test_case_38_a_prefix_that_was_used_again_outlives_one_that_was_not(make_manager):
    manager, one, other = make_manager(4), range(4), range(50, 54)
    serve(manager, make_request(one))
    serve(manager, make_request(other))
    manager.allocate_slots(holder := make_request(range(90, 98)), 8)  # the blocks that hold nothing
    again = make_request(range(5))
    manager.free(holder)
    assert admit(manager, again).num_tokens == 4
    manager.free(again)
    allocate(manager, make_request(range(200, 212)), 12)
    assert manager.peek_cached_tokens(make_request(range(5))) == 4
    assert manager.peek_cached_tokens(make_request(range(50, 55))) == 0


def test_case_39_finished_and_aborted_at_once(make_manager):
    manager, request, other = make_manager(4), make_request(range(8), "a"), make_request(range(9), "b")
    admit(manager, request)
    manager.cache_blocks(request, 8)
    admit(manager, other)
    manager.free(request)
    manager.free(request)
    assert manager.num_free_blocks == 1
    assert manager.num_freeable_blocks([other]) == 3
    manager.check_invariants()


def test_case_39_a_stale_word_about_a_request_does_not_touch_the_next_one_of_its_name(make_manager):
    manager, old, new = make_manager(4), make_request(range(8), "same"), make_request(range(50, 58), "same")
    admit(manager, old)
    manager.free(old)
    admit(manager, new)
    manager.free(old)
    assert manager.num_freeable_blocks([new]) == 2
    assert len(manager.get_block_ids(new)[0]) == 2
    manager.check_invariants()


def test_case_40_the_audit_is_right_about_an_idle_pool_of_shared_prefixes(make_manager):
    manager = make_manager(32)
    requests = [make_request([*range(8), *range(n, n + 6)]) for n in range(100, 108)]
    for request in requests:
        admit(manager, request)
        manager.cache_blocks(request, 14)
        manager.check_invariants()
    for request in requests[::2] + requests[1::2]:
        manager.free(request)
        manager.check_invariants()
    assert manager.num_free_blocks == 32
    assert manager.get_stats().num_cached_blocks == 2 + 8


def test_case_41_what_was_never_written_is_never_hit(make_manager):
    manager, request = make_manager(8), make_request(range(12))
    admit(manager, request)
    assert manager.peek_cached_tokens(make_request(range(13))) == 0
    manager.free(request)  # preempted before its step ran
    assert manager.peek_cached_tokens(make_request(range(13))) == 0
    assert manager.get_stats().num_cached_blocks == 0


def test_case_41_only_blocks_written_in_full_are_published(make_manager):
    manager, request = make_manager(8), make_request(range(12))
    admit(manager, request)
    for written, hit in ((3, 0), (4, 4), (7, 4), (11, 8), (12, 12)):
        manager.cache_blocks(request, written)
        assert manager.peek_cached_tokens(make_request(range(13))) == hit


@pytest.mark.parametrize("written", [12, 15])  # past its two blocks; past its 14 known tokens
def test_tokens_that_cannot_have_been_written_are_not_published(make_manager, written):
    manager, request = make_manager(8), make_request(range(14))
    admit(manager, request, num_tokens=8 if written == 12 else 16)
    with pytest.raises(InvariantError, match="cannot have been written"):
        manager.cache_blocks(request, written)
    assert manager.peek_cached_tokens(make_request(range(9))) == 0


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_case_42_equal_prompts_computed_together_and_ended_in_any_order(make_manager, order):
    manager = make_manager(9)
    requests = [make_request(range(8)) for _ in range(3)]
    assert [admit(manager, request).num_tokens for request in requests] == [0, 0, 0]
    for request in requests:
        manager.cache_blocks(request, 8)
    first = manager.get_block_ids(requests[0])
    assert manager.get_computed_blocks(make_request(range(9))).block_ids == first
    for n in order:
        blocks = manager.get_block_ids(requests[n])[0]
        manager.free(requests[n])
        manager.check_invariants()
        assert manager.peek_cached_tokens(make_request(range(9))) == 8
        for other in requests:
            assert not set(blocks) & set(manager.get_block_ids(other)[0])
    assert (manager.num_free_blocks, manager.get_stats().num_cached_blocks) == (9, 2)
    assert serve(manager, make_request(range(9))) == 8


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([65, 2], [321, 2]),  # equal in their low 8 bits
        ([1, 0], [1 + (1 << 32), 0]),
        ([-1, 0], [(1 << 32) - 1, 0]),
        ([131, 4], [100, 5]),  # equal under a polynomial hash
        ([1, 2], [2, 1]),
        ([1, 11], [11, 1]),
        ([0, 0], [0, 1]),
    ],
)
def test_case_43_only_the_same_tokens_in_the_same_place_hit(make_manager, one, other):
    manager, rest = make_manager(16, 2), [7, 8, 9]
    serve(manager, make_request(one + rest))
    assert manager.peek_cached_tokens(make_request(one + rest)) == 4
    for prompt in (other + rest, [7, 8, *one, *rest], other + one + rest):
        assert manager.get_computed_blocks(make_request(prompt)).num_tokens == 0


IDENTITIES = [{}, {"salt": "X"}, {"adapter": "X"}, {"salt": "Y"}, {"salt": "X", "adapter": "X"}, {"salt": ""}]


@pytest.mark.parametrize("identity", IDENTITIES)
def test_case_44_only_the_same_salt_and_adapter_hit(make_manager, identity):
    manager = make_manager(16)
    serve(manager, make_request(range(9), **identity))
    hits = [manager.get_computed_blocks(make_request(range(9), **other)).num_tokens for other in IDENTITIES]
    assert hits == [8 if other == identity else 0 for other in IDENTITIES]


def test_case_45_reset_says_false_and_changes_nothing_while_blocks_are_held(make_manager):
    manager, request = make_manager(8), make_request(range(9))
    serve(manager, make_request(range(9)))
    admit(manager, request)
    for token in range(9, 20):
        assert manager.reset_prefix_cache() is False
        assert manager.peek_cached_tokens(make_request(range(9))) == 8
        request.append([token])
        allocate(manager, request, request.num_tokens)
        manager.cache_blocks(request, request.num_tokens - 1)
        manager.check_invariants()
    manager.free(request)
    assert manager.reset_prefix_cache() is True
    assert manager.peek_cached_tokens(request) == 0
    assert manager.get_computed_blocks(request) == CachedPrefix(NOTHING, 0)
    assert (manager.num_free_blocks, manager.get_stats().num_cached_blocks) == (8, 0)
    assert serve(manager, make_request(range(9))) == 0


@pytest.mark.parametrize("block_size", [1, 4, 64])
@pytest.mark.parametrize("lengths", [(1, 2), (3, 4), (4, 4), (5, 8), (8, 9)])
def test_case_51_lengths_around_a_block(make_manager, block_size, lengths):
    length, longer = lengths
    manager = make_manager(16, block_size)
    request = make_request(range(length))
    admit(manager, request)
    assert len(manager.get_block_ids(request)[0]) == (length + block_size - 1) // block_size
    manager.cache_blocks(request, length)
    manager.check_invariants()
    manager.free(request)
    assert manager.num_free_blocks == 16
    full = length // block_size * block_size
    assert manager.peek_cached_tokens(make_request(range(longer + 1))) == full
    assert serve(manager, make_request(range(length))) == (length - 1) // block_size * block_size


def test_case_52_a_hit_is_counted_once_when_the_request_gets_its_blocks(make_manager):
    manager, blocker, request = make_manager(5), make_request(range(90, 98)), make_request(range(16))
    serve(manager, make_request(range(8)))
    assert manager.get_stats().queries == 8
    assert manager.get_stats().hits == 0
    allocate(manager, blocker, 8)
    for _ in range(2):
        assert manager.allocate_slots(request, 16, manager.get_computed_blocks(request)) is None
    assert (manager.get_stats().queries, manager.get_stats().hits) == (8, 0)
    manager.free(blocker)
    assert admit(manager, request).num_tokens == 8
    assert (manager.get_stats().queries, manager.get_stats().hits) == (24, 8)


def test_case_52_a_resumed_request_is_not_a_second_query(make_manager):
    manager, request = make_manager(5), make_request(range(9))
    admit(manager, request)
    manager.cache_blocks(request, 9)
    manager.free(request)
    request.preempt()
    assert admit(manager, request).num_tokens == 8
    assert (manager.get_stats().queries, manager.get_stats().hits) == (9, 0)


def test_case_52_an_idle_pool_counts_as_free_although_it_is_full_of_cached_blocks(make_manager):
    manager = make_manager(120)
    for n in range(50):
        serve(manager, make_request(range(n * 10, n * 10 + 10)))
    stats = manager.get_stats()
    assert (stats.num_blocks, stats.num_free_blocks, stats.num_cached_blocks) == (120, 120, 100)
    assert (stats.queries, stats.hits) == (500, 0)


def test_case_53_a_request_that_skips_the_cache_grows_chunk_by_chunk_and_leaves_nothing(make_manager):
    manager, request = make_manager(8), make_request(range(16), skip=True)
    serve(manager, make_request(range(8)))
    prefix = manager.get_computed_blocks(request)
    assert (prefix.num_tokens, manager.peek_cached_tokens(request)) == (0, 0)
    allocate(manager, request, 4, prefix)
    for chunk in (8, 12, 16):
        manager.cache_blocks(request, chunk - 4)
        allocate(manager, request, chunk)
        assert len(manager.get_block_ids(request)[0]) == chunk // 4
    manager.cache_blocks(request, 16)
    assert request.block_hashes == []
    assert manager.peek_cached_tokens(make_request(range(17))) == 8
    assert manager.get_stats().queries == 8
    manager.free(request)
    assert (manager.num_free_blocks, manager.get_stats().num_cached_blocks) == (8, 2)


def test_a_preempted_request_finds_its_prompt_and_its_output_again(make_manager):
    manager, request = make_manager(8), make_request(range(6))
    admit(manager, request)
    manager.cache_blocks(request, 6)
    request.append([6, 7, 8, 9])
    allocate(manager, request, 10)
    manager.cache_blocks(request, 9)
    manager.free(request)
    request.preempt()
    assert manager.get_computed_blocks(request).num_tokens == 8
    other = make_request([*range(6), 99, 98, 8, 9])
    assert manager.get_computed_blocks(other).num_tokens == 4


def test_without_prefix_caching_nothing_is_hashed_or_hit(make_manager):
    manager, request = make_manager(4, enable_prefix_caching=False), make_request(range(9))
    assert serve(manager, request) == 0
    assert serve(manager, request) == 0
    assert request.block_hashes == []
    assert manager.reset_prefix_cache() is True
    stats = manager.get_stats()
    assert (stats.num_free_blocks, stats.num_cached_blocks, stats.queries, stats.hits) == (4, 0, 0, 0)
