"""Each order of eviction on a few single blocks, with what it gives up written down."""

import weakref
from dataclasses import dataclass

import pytest

from enginecore.clock import VirtualClock
from enginecore.kv_cache import BlockPool, Content, HashIndex, KeyedOrder
from tests.kv_cache.making import EVICTIONS, MANAGERS, admit, make_manager, make_order, make_request, serve


class SmallCache:
    """Contents of one block each, or two: "A", and "AB" behind it."""

    def __init__(self, order, num_blocks):
        self.clock = VirtualClock()
        self.pool = BlockPool(num_blocks, HashIndex(), order, self.clock)
        self.put = []

    def use(self, words):
        """Of each word: hit what is cached of it, compute the rest, and go."""
        for word in words.split():
            keys = [word[: n + 1].encode() for n in range(len(word))]
            hit = self.pool.find_prefix(keys, len(keys))
            self.pool.share(hit)
            blocks = [*hit, *self.pool.allocate(len(keys) - len(hit))]
            self.pool.publish(blocks, keys, len(hit), len(keys))
            self.pool.free(blocks, word)
            self.put += [key.decode() for key in keys if key.decode() not in self.put]
            self.pool.check_invariants([])

    def holds(self, word):
        return self.pool.count_prefix([word[: n + 1].encode() for n in range(len(word))], len(word)) == len(word)

    def evicted(self):
        """What goes, in order, as blocks are taken one by one."""
        gone = []
        self.pool.allocate(self.pool.num_free - self.pool.num_cached)
        while self.pool.num_free:
            before = [word for word in self.put if self.holds(word)]
            self.pool.allocate(1)
            gone += [word for word in before if not self.holds(word)]
        return gone


@pytest.mark.parametrize(
    ("eviction", "used", "evicted"),
    [
        ("lru", "A B C A", ["B", "C", "A"]),
        ("lru", "A A A B C", ["A", "B", "C"]),
        ("lfu", "A B A A B C", ["C", "B", "A"]),  # with 0, 1 and 2 hits
        ("lfu", "A B C A B C A B C", ["A", "B", "C"]),  # 2 each: least recently used first
        ("fifo", "A B C A B", ["A", "B", "C"]),
        ("fifo", "C B A B C", ["C", "B", "A"]),
        ("ttl", "A B C A", ["B", "C", "A"]),
    ],
)
def test_what_goes_first(eviction, used, evicted):
    cache = SmallCache(make_order(eviction), 4)
    cache.use(used)
    assert cache.evicted() == evicted


@pytest.mark.parametrize(
    ("eviction", "used", "evicted"),
    [
        ("lru", "AX AY B A", ["AX", "AY", "B", "A"]),  # A was used alone last
        ("lfu", "AX AX AX AY B", ["AY", "B", "AX", "A"]),  # AY and B with no hit, AX with 2, A with 3
        ("fifo", "AX B AY", ["AX", "B", "AY", "A"]),  # A came first of all
        ("ttl", "AX AY B A", ["AX", "AY", "B", "A"]),
    ],
)
def test_case_38_a_parent_stays_as_long_as_its_children(eviction, used, evicted):
    cache = SmallCache(make_order(eviction), 5)
    cache.use(used)
    assert cache.evicted() == evicted


# -- ttl --


def test_ttl_forgets_what_nobody_used_for_so_long_and_each_use_begins_it_anew():
    cache = SmallCache(make_order("ttl", seconds=10.0), 4)
    cache.use("A B")
    cache.clock.wait(deadline=6.0)
    cache.use("A")
    cache.clock.wait(deadline=9.999)
    assert (cache.holds("A"), cache.holds("B")) == (True, True)
    cache.clock.wait(deadline=10.0)
    assert (cache.holds("A"), cache.holds("B")) == (True, False)
    cache.clock.wait(deadline=16.0)
    assert (cache.holds("A"), cache.holds("B")) == (False, False)


def test_ttl_does_not_touch_what_is_in_use():
    cache = SmallCache(make_order("ttl", seconds=10.0), 4)
    cache.use("AX")
    prefix = cache.pool.find_prefix([b"A"], 1)
    cache.pool.share(prefix)
    cache.clock.wait(deadline=1000.0)
    assert (cache.holds("A"), cache.holds("AX")) == (True, False)
    cache.pool.free(prefix, "r")
    cache.clock.wait(deadline=1009.0)
    assert cache.holds("A")
    cache.pool.check_invariants([])


def test_ttl_counts_expired_blocks_as_cached_until_the_next_allocation():
    cache = SmallCache(make_order("ttl", seconds=10.0), 8)
    cache.use("AXY B")
    cache.clock.wait(deadline=5.0)
    cache.use("AX")
    cache.clock.wait(deadline=12.0)
    assert (cache.pool.num_cached, cache.pool.num_free) == (4, 8)
    cache.pool.free(cache.pool.allocate(1), "r")
    assert (cache.pool.num_cached, cache.pool.num_free) == (2, 8)
    assert (cache.holds("AX"), cache.holds("AXY")) == (True, False)


@pytest.mark.parametrize("manager", MANAGERS)
def test_ttl_a_prefix_that_was_found_in_time_is_given(manager):
    """Time goes on between look-up and allocation; a scheduler that was promised a prefix gets it."""
    clock = VirtualClock()
    cache = make_manager(8, manager=manager, order=make_order("ttl", seconds=10.0), clock=clock)
    serve(cache, make_request(range(8)))
    clock.wait(deadline=9.0)
    request = make_request(range(12))
    prefix = cache.get_computed_blocks(request)
    clock.wait(deadline=11.0)
    assert cache.peek_cached_tokens(make_request(range(12))) == 0
    assert cache.allocate_slots(request, 12, prefix) is not None
    assert prefix.num_tokens == 8
    assert cache.get_stats().hits == 8
    assert cache.peek_cached_tokens(make_request(range(12))) == 8  # it is in use again


def test_ttl_takes_no_lifetime_that_is_none():
    for seconds in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="seconds"):
            make_order("ttl", seconds=seconds)


# -- any order --


@pytest.mark.parametrize("eviction", EVICTIONS)
@pytest.mark.parametrize("manager", MANAGERS)
def test_a_prefix_loses_its_tail_first_under_every_order(manager, eviction):
    cache, prompt = make_manager(3, manager=manager, order=make_order(eviction)), range(13)
    serve(cache, make_request(range(12)))
    hits = []
    for first in (100, 200, 300):
        hits.append(cache.peek_cached_tokens(make_request(prompt)))
        admit(cache, make_request([first]))
    assert hits == [12, 8, 4]


@dataclass(order=True)
class Key:
    number: int


def test_what_was_removed_does_not_pile_up():
    made = []

    class Counted(KeyedOrder):
        def key(self, content):
            key = Key(content.published)
            made.append(weakref.ref(key))
            return key

    order = Counted()
    contents = [Content(n, bytes([n]), None, n) for n in range(20)]
    for content in contents:
        order.add(content)
    for _ in range(200):
        for content in contents[5:]:
            order.remove(content)
        for content in contents[5:]:
            order.add(content)
    assert len(made) == 3020
    assert sum(key() is not None for key in made) <= 2 * 20 + 64 + 1
    assert [order.pop() for _ in range(len(order))] == contents
    assert list(order) == []
