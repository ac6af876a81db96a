from typing import Any

import pytest

from enginecore.clock import VirtualClock
from enginecore.errors import InvariantError
from enginecore.kv_cache import BlockPool, Content, HashIndex, KeyedOrder, Lru
from enginecore_kv_cache.radix_tree import RadixTree

A, B, C, D = b"a", b"b", b"c", b"d"  # good as hashes and as tokens: none is used at two places
INDEXES: dict[str, Any] = {"hashes": HashIndex, "tree": RadixTree}


@pytest.fixture(params=INDEXES)
def make_pool(request):
    def make(num_blocks, order=None):
        return BlockPool(num_blocks, INDEXES[request.param](), Lru() if order is None else order, VirtualClock())

    return make


def publish(pool, blocks, keys, start=0):
    pool.publish(blocks, keys, start, len(blocks))


def find(pool, keys):
    return pool.find_prefix(keys, len(keys))


def test_blocks_are_given_out_once(make_pool):
    pool = make_pool(3)
    assert sorted(pool.allocate(2) + pool.allocate(1)) == [0, 1, 2]
    assert pool.num_free == 0
    with pytest.raises(InvariantError, match="1 blocks asked for, but only 0 are free"):
        pool.allocate(1)


def test_case_39_a_block_freed_twice_is_an_error_that_names_who_did_it(make_pool):
    pool = make_pool(3)
    blocks = pool.allocate(2)
    pool.free(blocks, "request 'first'")
    with pytest.raises(InvariantError, match=r"request 'second' frees block .*freed twice"):
        pool.free(blocks, "request 'second'")
    assert pool.num_free == 3
    pool.check_invariants([])


def test_case_39_a_list_that_names_a_block_twice_may_give_up_two_references_but_not_more(make_pool):
    pool = make_pool(2)
    (block,) = pool.allocate(1)
    publish(pool, [block], [A])
    pool.share([block])
    pool.free([block, block], "request 'two'")
    assert pool.num_free == 2
    pool.share([block])
    with pytest.raises(InvariantError, match="'one'"):
        pool.free([block, block], "request 'one'")
    pool.check_invariants([])
    assert sorted(pool.allocate(2)) == [0, 1]


@pytest.mark.parametrize("block", [-1, 2])
def test_case_39_a_block_that_does_not_exist_is_an_error_and_frees_nothing(make_pool, block):
    pool = make_pool(2)
    held = pool.allocate(2)
    with pytest.raises(InvariantError, match="'r' frees blocks"):
        pool.free([held[0], block], "'r'")
    assert pool.num_free == 0


def test_a_block_without_content_cannot_be_shared_nor_a_free_one_published(make_pool):
    pool = make_pool(2)
    (block,) = pool.allocate(1)
    with pytest.raises(InvariantError, match="not published"):
        pool.share([block])
    pool.free([block], "r")
    with pytest.raises(InvariantError, match="it is free"):
        publish(pool, [block], [A])


def test_a_block_is_published_once(make_pool):
    pool = make_pool(1)
    blocks = pool.allocate(1)
    publish(pool, blocks, [A])
    with pytest.raises(InvariantError, match="published already"):
        publish(pool, blocks, [B])


def test_free_blocks_without_content_are_given_out_before_cached_ones(make_pool):
    pool = make_pool(3)
    cached = pool.allocate(1)
    empty = pool.allocate(2)
    publish(pool, cached, [A])
    pool.free(cached, "r")
    pool.free(empty, "s")
    assert sorted(pool.allocate(2)) == sorted(empty)
    assert find(pool, [A]) == cached
    assert pool.allocate(1) == cached
    assert find(pool, [A]) == []


def test_a_hit_block_cannot_be_evicted(make_pool):
    pool = make_pool(2)
    blocks = pool.allocate(2)
    publish(pool, blocks, [A, B])
    pool.free(blocks, "r")
    pool.share(blocks[:1])
    assert pool.num_free == 1
    assert pool.allocate(1) == blocks[1:]


def test_case_42_the_first_of_two_copies_is_hit_and_losing_the_other_changes_nothing(make_pool):
    pool = make_pool(2)
    first, second = pool.allocate(1), pool.allocate(1)
    publish(pool, first, [A])
    publish(pool, second, [A])
    assert find(pool, [A]) == first
    pool.free(second, "s")
    assert find(pool, [A]) == first
    assert pool.allocate(1) == second
    assert find(pool, [A]) == first


def test_case_42_the_copy_in_use_takes_over_when_the_first_is_freed(make_pool):
    pool = make_pool(2)
    first, second = pool.allocate(1), pool.allocate(1)
    publish(pool, first, [A])
    publish(pool, second, [A])
    pool.free(first, "r")
    assert pool.allocate(1) == first
    assert find(pool, [A]) == second
    pool.check_invariants([("t", first), ("s", second)])


def test_a_freed_copy_holds_nothing_of_value(make_pool):
    pool = make_pool(3)
    blocks = [pool.allocate(1) for _ in range(3)]
    for block in blocks:
        publish(pool, block, [A])
    for block in blocks:
        pool.free(block, "r")
    assert (pool.num_free, pool.num_cached) == (3, 1)
    assert sorted(pool.allocate(2)) == sorted(blocks[0] + blocks[1])
    assert find(pool, [A]) == blocks[2]


def test_a_copy_that_took_over_outlives_the_children_that_hang_on_it(make_pool):
    """`long` computed its own copy of A; that one takes over, and its B hangs on it."""
    pool = make_pool(4)
    short, long = pool.allocate(1), pool.allocate(2)
    publish(pool, short, [A])
    publish(pool, long, [A, B])
    pool.free(short, "short")
    pool.free(long, "long")
    pool.check_invariants([])
    pool.allocate(2)  # those without content
    assert find(pool, [A, B]) == long
    pool.allocate(1)
    assert find(pool, [A, B]) == long[:1]


def test_find_and_count_stop_at_the_first_block_that_is_missing(make_pool):
    pool = make_pool(3)
    blocks = pool.allocate(3)
    publish(pool, blocks, [A, B, C])
    pool.free(blocks, "r")
    assert find(pool, [A, D, C]) == blocks[:1]
    for limit in range(4):
        assert pool.count_prefix([A, B, C], limit) == limit
    pool.allocate(1)
    assert find(pool, [A, B, C]) == blocks[:2]
    assert pool.count_prefix([A, B, C], 3) == 2


def test_reset_forgets_all_contents_or_does_nothing(make_pool):
    pool = make_pool(3)
    blocks = pool.allocate(2)
    publish(pool, blocks, [A, B])
    pool.free(blocks[1:], "r")
    assert not pool.reset()
    assert find(pool, [A, B]) == blocks
    pool.free(blocks[:1], "r")
    assert pool.reset()
    assert find(pool, [A, B]) == []
    assert (pool.num_free, pool.num_cached) == (3, 0)
    pool.check_invariants([])


class MostRecentlyUsed(KeyedOrder):
    def key(self, content):
        return -content.published


class Deepest(KeyedOrder):
    def key(self, content):
        return -content.position


class Shallowest(KeyedOrder):
    def key(self, content):
        return content.position


@pytest.mark.parametrize("order", [MostRecentlyUsed, Deepest, Shallowest, Lru])
def test_case_38_whatever_the_order_wants_no_parent_goes_before_its_children(make_pool, order):
    pool = make_pool(5, order())
    trunk = pool.allocate(2)
    publish(pool, trunk, [A, B])
    pool.share(trunk)
    branches = [[*trunk, *pool.allocate(1)], [*trunk, *pool.allocate(1)]]
    for branch, key in zip(branches, (C, D), strict=True):
        publish(pool, branch, [A, B, key], 2)
        pool.free(branch, "r")
    pool.allocate(1)
    kept = []
    for _ in range(4):
        pool.allocate(1)
        kept.append((len(find(pool, [A, B, C])), len(find(pool, [A, B, D]))))
    assert kept[1:] == [(2, 2), (1, 1), (0, 0)]
    assert sorted(kept[0]) == [2, 3]


class Inventing(Lru):
    def __init__(self, invented):
        super().__init__()
        self.invented = invented

    def pop(self):
        return self.invented


def test_an_order_that_gives_up_what_it_does_not_hold_is_caught(make_pool):
    pool = make_pool(2, Inventing(Content(0, A, None, 0)))
    blocks = pool.allocate(2)
    publish(pool, blocks[1:], [A])
    pool.free(blocks[1:], "r")
    with pytest.raises(InvariantError, match=r"gave up .*block 0 at position 0.*, which it does not hold"):
        pool.allocate(1)


def test_an_order_that_gives_up_a_parent_is_caught_and_gives_no_false_hit(make_pool):
    order = Inventing(None)
    pool = make_pool(3, order)
    blocks = pool.allocate(3)
    publish(pool, blocks, [A, B, C])
    pool.free(blocks, "r")
    (leaf,) = order
    order.invented = leaf.parent  # type: ignore[attr-defined]
    with pytest.raises(InvariantError, match=r"gave up .*position 1"):
        pool.allocate(1)
    assert find(pool, [A, B, C]) == blocks
    pool.check_invariants([])


def test_a_copy_that_takes_over_keeps_what_is_known_of_its_content(make_pool):
    """Else it would have fewer hits than its child, and an order by hits would want it to go first."""
    hits = {}

    class Watching(Lru):
        def add(self, content):
            hits[content.position] = content.num_hits, content.published
            super().add(content)

    pool = make_pool(4, Watching())
    one, other = pool.allocate(2), pool.allocate(1)
    publish(pool, one, [A, B])
    publish(pool, other, [A])
    pool.share(one)
    pool.free(one, "hit")
    pool.free(one, "first")
    assert find(pool, [A, B]) == [other[0], one[1]]
    pool.free(other, "copy")
    pool.allocate(3)
    assert hits == {1: (1, 1), 0: (1, 0)}


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ([], "reference counts are"),
        ([("r", [0, 0])], "r holds a block twice"),
        ([("r", [0]), ("s", [0])], "should be {0: 2}"),
        ([("r", [0]), ("s", [1])], "should be {1: 1}"),
    ],
)
def test_the_audit_sees_tables_that_do_not_fit_the_counts(make_pool, tables, message):
    pool = make_pool(2)
    assert pool.allocate(1) == [0]
    pool.check_invariants([("r", [0])])
    with pytest.raises(InvariantError, match=message):
        pool.check_invariants(tables)
