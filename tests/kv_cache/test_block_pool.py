import pytest

from enginecore.errors import InvariantError
from enginecore.kv_cache import BlockPool, Lru

A, B, C, D = b"a", b"b", b"c", b"d"


def make_pool(num_blocks):
    return BlockPool(num_blocks, Lru())


def test_blocks_are_given_out_once():
    pool = make_pool(3)
    assert sorted(pool.allocate(2) + pool.allocate(1)) == [0, 1, 2]
    assert pool.num_free == 0
    with pytest.raises(InvariantError, match="1 blocks asked for, but only 0 are free"):
        pool.allocate(1)


def test_case_39_a_block_freed_twice_is_an_error_that_names_who_did_it():
    pool = make_pool(3)
    blocks = pool.allocate(2)
    pool.free(blocks, "request 'first'")
    with pytest.raises(InvariantError, match=r"request 'second' frees block .*freed twice"):
        pool.free(blocks, "request 'second'")
    assert pool.num_free == 3
    pool.check_invariants([])


def test_case_39_a_list_that_names_a_block_twice_may_give_up_two_references_but_not_more():
    pool = make_pool(2)
    (block,) = pool.allocate(1)
    pool.publish([block], [A], None)
    pool.share([block])
    pool.free([block, block], "request 'two'")
    assert pool.num_free == 2
    pool.share([block])
    with pytest.raises(InvariantError, match="'one'"):
        pool.free([block, block], "request 'one'")
    pool.check_invariants([])
    assert sorted(pool.allocate(2)) == [0, 1]


@pytest.mark.parametrize("block", [-1, 2])
def test_case_39_a_block_that_does_not_exist_is_an_error_and_frees_nothing(block):
    pool = make_pool(2)
    held = pool.allocate(2)
    with pytest.raises(InvariantError, match="'r' frees blocks"):
        pool.free([held[0], block], "'r'")
    assert pool.num_free == 0


def test_a_block_without_content_cannot_be_shared_nor_a_free_one_published():
    pool = make_pool(2)
    (block,) = pool.allocate(1)
    with pytest.raises(InvariantError, match="not published"):
        pool.share([block])
    pool.free([block], "r")
    with pytest.raises(InvariantError, match="it is free"):
        pool.publish([block], [A], None)


def test_a_block_is_published_once():
    pool = make_pool(1)
    blocks = pool.allocate(1)
    pool.publish(blocks, [A], None)
    with pytest.raises(InvariantError, match="published already"):
        pool.publish(blocks, [B], None)


def test_free_blocks_without_content_are_given_out_before_cached_ones():
    pool = make_pool(3)
    cached = pool.allocate(1)
    empty = pool.allocate(2)
    pool.publish(cached, [A], None)
    pool.free(cached, "r")
    pool.free(empty, "s")
    assert sorted(pool.allocate(2)) == sorted(empty)
    assert pool.find_prefix([A]) == cached
    assert pool.allocate(1) == cached
    assert pool.find_prefix([A]) == []


def test_a_hit_block_cannot_be_evicted():
    pool = make_pool(2)
    blocks = pool.allocate(2)
    pool.publish(blocks, [A, B], None)
    pool.free(blocks, "r")
    pool.share(blocks[:1])
    assert pool.num_free == 1
    assert pool.allocate(1) == blocks[1:]


def test_case_42_the_first_of_two_copies_is_hit_and_losing_the_other_changes_nothing():
    pool = make_pool(2)
    first, second = pool.allocate(1), pool.allocate(1)
    pool.publish(first, [A], None)
    pool.publish(second, [A], None)
    assert pool.find_prefix([A]) == first
    pool.free(second, "s")
    assert pool.find_prefix([A]) == first
    assert pool.allocate(1) == second
    assert pool.find_prefix([A]) == first


def test_case_42_the_copy_in_use_takes_over_when_the_first_is_evicted():
    pool = make_pool(2)
    first, second = pool.allocate(1), pool.allocate(1)
    pool.publish(first, [A], None)
    pool.publish(second, [A], None)
    pool.free(first, "r")
    assert pool.allocate(1) == first
    assert pool.find_prefix([A]) == second
    pool.check_invariants([("t", first), ("s", second)])


def test_a_freed_copy_holds_nothing_of_value():
    pool = make_pool(3)
    blocks = [pool.allocate(1) for _ in range(3)]
    for block in blocks:
        pool.publish(block, [A], None)
    for block in blocks:
        pool.free(block, "r")
    assert (pool.num_free, pool.num_cached) == (3, 1)
    assert sorted(pool.allocate(2)) == sorted(blocks[1] + blocks[2])


def test_a_parent_that_lost_its_users_to_a_copy_outlives_their_children():
    """`long` computed its own copy of A, so its B hangs on a block that it never referenced."""
    pool = make_pool(4)
    short, long = pool.allocate(1), pool.allocate(2)
    pool.publish(short, [A], None)
    pool.publish(long, [A, B], None)
    pool.free(short, "short")
    pool.free(long, "long")
    pool.check_invariants([])
    pool.allocate(2)  # those without content
    assert pool.find_prefix([A, B]) == [short[0], long[1]]
    pool.allocate(1)
    assert pool.find_prefix([A, B]) == short


def test_find_and_count_stop_at_the_first_block_that_is_missing():
    pool = make_pool(3)
    blocks = pool.allocate(3)
    pool.publish(blocks, [A, B, C], None)
    pool.free(blocks, "r")
    assert pool.find_prefix([A, D, C]) == blocks[:1]
    for limit in range(4):
        assert pool.count_prefix([A, B, C], limit) == limit
    pool.allocate(1)
    assert pool.find_prefix([A, B, C]) == blocks[:2]
    assert pool.count_prefix([A, B, C], 3) == 2


def test_reset_forgets_all_contents_or_does_nothing():
    pool = make_pool(3)
    blocks = pool.allocate(2)
    pool.publish(blocks, [A, B], None)
    pool.free(blocks[1:], "r")
    assert not pool.reset()
    assert pool.find_prefix([A, B]) == blocks
    pool.free(blocks[:1], "r")
    assert pool.reset()
    assert pool.find_prefix([A, B]) == []
    assert (pool.num_free, pool.num_cached) == (3, 0)
    pool.check_invariants([])


class MostRecentlyUsed(Lru):
    """Breaks the promise of an order of eviction: parents go first."""

    def pop(self):
        block = list(self)[-1]
        self.remove(block)
        return block


def test_case_38_an_order_that_evicts_parents_first_is_reported_and_never_gives_a_false_hit():
    pool = BlockPool(3, MostRecentlyUsed())
    blocks = pool.allocate(3)
    pool.publish(blocks, [A, B, C], None)
    pool.free(blocks, "r")
    assert pool.allocate(1) == blocks[:1]
    assert pool.find_prefix([A, B, C]) == []
    with pytest.raises(InvariantError, match="its parent is not"):
        pool.check_invariants([("s", blocks[:1])])


class Inventing(Lru):
    def pop(self):
        return 0


def test_an_order_that_gives_up_what_it_does_not_hold_is_caught():
    pool = BlockPool(2, Inventing())
    blocks = pool.allocate(2)
    pool.publish(blocks[1:], [A], None)
    pool.free(blocks[1:], "r")
    with pytest.raises(InvariantError, match="gave up block 0, which it does not hold"):
        pool.allocate(1)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ([], "reference counts are"),
        ([("r", [0, 0])], "r holds a block twice"),
        ([("r", [0]), ("s", [0])], "should be {0: 2}"),
        ([("r", [0]), ("s", [1])], "should be {1: 1}"),
    ],
)
def test_the_audit_sees_tables_that_do_not_fit_the_counts(tables, message):
    pool = make_pool(2)
    assert pool.allocate(1) == [0]
    pool.check_invariants([("r", [0])])
    with pytest.raises(InvariantError, match=message):
        pool.check_invariants(tables)
