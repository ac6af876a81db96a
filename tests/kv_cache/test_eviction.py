from enginecore.kv_cache import Lru


def test_the_block_that_entered_first_leaves_first():
    order = Lru()
    for block in (3, 1, 2):
        order.add(block)
    assert list(order) == [3, 1, 2]
    assert [order.pop() for _ in range(len(order))] == [3, 1, 2]
    assert len(order) == 0


def test_a_block_that_was_used_again_enters_anew():
    order = Lru()
    for block in (3, 1, 2):
        order.add(block)
    order.remove(3)
    order.add(3)
    assert [order.pop() for _ in range(3)] == [1, 2, 3]
