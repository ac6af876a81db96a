"""Checks of KV cache managers that set up one situation each."""

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

from enginecore.interfaces import CachedContent, EvictionOrder
from enginecore.scheduling import ContinuousBatchingScheduler
from enginecore_conformance.chaos import Chaos
from enginecore_conformance.checks import Violation, check
from enginecore_conformance.kv_cache_managers.bench import KVCacheBench
from enginecore_conformance.kv_cache_managers.run import KVCacheRun
from enginecore_conformance.schedulers.run import SchedulerRun
from enginecore_conformance.schedulers.traffic import MAX_MODEL_LEN, busy_moves
from enginecore_conformance.weight import count_objects, require_light_import

LOOK_ALIKES = (
    ([65, 2, 3, 4], [321, 2, 3, 4]),  # ids cut to a byte
    ([65_537, 2, 3, 4], [1, 2, 3, 4]),  # or to two
    ([40, 9, 3, 4], [9, 40, 3, 4]),  # order
    ([32, 9, 3, 4], [1, 10, 3, 4]),  # a + 31 * b
    ([9, 1, 3, 4], [8, 32, 3, 4]),  # 31 * a + b
    ([1, 23, 4, 5], [12, 3, 4, 5]),  # digits that run into one another
    ([-1, 2, 3, 4], [255, 2, 3, 4]),
)
IDENTITIES: tuple[dict[str, Any], ...] = (
    {}, {"salt": "x"}, {"adapter": "x"}, {"salt": "y"}, {"salt": ""}, {"salt": "x", "adapter": "x"}, {"salt": "None"},
    {"adapter": ""},
)  # fmt: skip
FEW, MANY = 30, 130
SLACK = 80
"""Objects more that 100 requests may leave."""


@check("kv_cache_manager", "prefix_caching")
def look_alikes_are_told_apart(bench: KVCacheBench) -> None:
    """Tokens that differ are never taken for one another, nor is a block behind another prefix."""
    for one, other in (*LOOK_ALIKES, *[(other, one) for one, other in LOOK_ALIKES]):
        run = bench.start(num_blocks=16, block_size=4)
        run.start("one", [*one, 7, 7, 7, 7, 5])
        run.add("other", [*other, 7, 7, 7, 7, 5])
        run.lookup("other")
        run.finish()


@check("kv_cache_manager", "prefix_caching")
def identities_are_typed(bench: KVCacheBench) -> None:
    """Salt and adapter are parts of their own: none, an empty one, and equal words in different
    parts all differ.
    """
    run = bench.start(num_blocks=64, block_size=4)
    tokens = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    for number, identity in enumerate(IDENTITIES):
        run.start(f"r{number}", tokens, **identity)
    for number, identity in enumerate(IDENTITIES):
        run.add(f"again{number}", tokens, **identity)
        if (found := run.lookup(f"again{number}").num_tokens) != 8:
            raise Violation(f"of 9 tokens with {identity}, all of which are published, {found} are found", "8")
    run.finish()


@check("kv_cache_manager", "prefix_caching")
def full_hits_leave_the_last_token(bench: KVCacheBench) -> None:
    """A prompt all of whose blocks are cached is found up to the block before its last token."""
    for length, right in ((7, 4), (8, 4), (9, 8)):
        run = bench.start(num_blocks=16, block_size=4)
        for number in range(3):
            run.start(f"r{number}", range(1, length + 1))
            found = run.requests[f"r{number}"].num_cached_tokens
            if found != (right if number else 0):
                raise Violation(f"a prompt of {length} tokens, sent again, found {found} tokens", f"{right}")
            run.free(f"r{number}")


@check("kv_cache_manager", "prefix_caching")
def peeking_touches_no_order(bench: KVCacheBench) -> None:
    """Look-ups between two calls change nothing that comes after: no order of eviction, no block,
    no statistics.
    """
    quiet, watched = (bench.start(num_blocks=9, block_size=2) for _ in range(2))
    for step in range(24):
        tokens = [1 + step % 5, 2, 3 + step % 3, 4, 5 + step % 2]
        for run in (quiet, watched):
            run.start(f"r{step}", tokens)
            run.free(f"r{step}")
        for number in range(5):
            watched.add("curious", [1 + number, 2, 3 + number % 3, 4, 5])
            watched.lookup("curious")
        if quiet.manager.get_stats() != watched.manager.get_stats():
            raise Violation(
                f"after look-ups of others, the same requests leave {watched.manager.get_stats()}, not "
                f"{quiet.manager.get_stats()}",
                "look-ups touch no order and no statistics",
            )


@check("kv_cache_manager", "prefix_caching")
def lookups_are_counted_once(bench: KVCacheBench) -> None:
    """A request's prompt tokens are counted as looked up, and those found as hits, when it gets its
    blocks: not when it is looked at, not when they do not fit, not again when it resumes, and not
    if it skips the cache.
    """
    run = bench.start(num_blocks=5, block_size=4)
    run.start("one", range(1, 10))
    run.free("one")
    run.add("two", range(1, 10))
    for _ in range(3):
        run.lookup("two")
    run.start("big", range(50, 62))
    run.admit("two")  # does not fit
    _expect_counts(run, 9 + 12, 0)
    run.free("big")
    run.admit("two")
    _expect_counts(run, 9 + 12 + 9, run.requests["two"].num_cached_tokens)
    run.write("two")
    run.free("two")
    run.admit("two")
    _expect_counts(run, 9 + 12 + 9, run.requests["two"].num_cached_tokens)
    run.free("two")
    run.start("skips", range(1, 10), skip=True)
    _expect_counts(run, 9 + 12 + 9, run.requests["two"].num_cached_tokens)


def _expect_counts(run: KVCacheRun, queries: int, hits: int) -> None:
    stats = run.manager.get_stats()
    if (stats.queries, stats.hits) != (queries, hits):
        raise Violation(f"{stats.queries} queries and {stats.hits} hits", f"{queries} and {hits}")


@check("kv_cache_manager")
def double_frees_do_no_harm(bench: KVCacheBench) -> None:
    """Freeing a request again, or one that never held a block, does nothing, even if
    other requests hold those blocks by now.
    """
    run = bench.start(num_blocks=4, block_size=4)
    run.start("one", range(1, 9))
    run.free("one")
    run.start("two", range(20, 36))
    for name in ("one", "never"):
        run.add("never", [1])
        run.free(name)
        run.free(name)
    if (held := len(run.manager.get_block_ids(run.requests["two"])[0])) != 4:
        raise Violation(f"after frees of others a request holds {held} of its 4 blocks", "its own")
    run.finish()


@check("kv_cache_manager")
def ids_do_not_mix(bench: KVCacheBench) -> None:
    """Blocks belong to a request, not to its id, which may be in use again before its first owner's
    are freed.
    """
    run = bench.start(num_blocks=8, block_size=4)
    run.start("r", range(1, 9))
    first = run.requests["r"]
    run.start("r", range(20, 28))
    second = run.requests["r"]
    run.manager.free(first)
    if len(run.manager.get_block_ids(second)[0]) != 2 or any(run.manager.get_block_ids(first)):
        raise Violation("of two requests with one id, the blocks of the wrong one were freed", "those of the one named")
    run.finish()


@check("kv_cache_manager")
def same_calls_give_the_same_blocks(bench: KVCacheBench) -> None:
    """Two managers in one process share nothing; the same calls give the same blocks and hits."""
    runs = [bench.start(num_blocks=9, block_size=2) for _ in range(2)]
    for step in range(30):
        for run in runs:
            run.start(f"r{step}", [1 + step % 3, 2, 3 + step % 2, 4, 5])
        one, other = (run.manager.get_block_ids(run.requests[f"r{step}"]) for run in runs)
        if one != other:
            raise Violation(f"call by call alike, one manager gave blocks {one} and the other {other}", "the same")
        for run in runs:
            run.free(f"r{step - step % 3}")


@check("kv_cache_manager")
def tokens_are_right_under_chaos(bench: KVCacheBench) -> None:
    """Under a scheduling policy that decides everything at random, every request gets the tokens
    that it gets alone.
    """
    for number, (depth, in_order, caching) in enumerate(itertools.product((1, 4), (True, False), (True, False))):
        parts = bench.parts.with_scheduler(partial(ContinuousBatchingScheduler, Chaos(number)))
        run = SchedulerRun.of(
            parts,
            {
                "num_blocks": 10 + number % 3, "max_num_seqs": 4, "max_num_batched_tokens": 16,
                "max_model_len": MAX_MODEL_LEN, "depth": depth, "feeds_tokens": depth > 1, "in_order": in_order,
                "enable_prefix_caching": caching and bench.caches,
            },
        )  # fmt: skip
        for move in busy_moves(number, 14):
            getattr(run, move.method)(*move.args, **move.kwargs)
        run.finish()


class _Stack(EvictionOrder):
    """Gives up last what was added first, which no other order does."""

    def __init__(self) -> None:
        self._held: dict[CachedContent, None] = {}
        self.popped: list[int] = []

    def add(self, content: CachedContent, /) -> None:
        self._held[content] = None

    def remove(self, content: CachedContent, /) -> None:
        del self._held[content]

    def pop(self) -> CachedContent:
        content, _ = self._held.popitem()
        self.popped.append(content.block_id)
        return content

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[CachedContent]:
        return iter(list(self._held))


@check("kv_cache_manager", "eviction", "prefix_caching")
def the_eviction_component_decides(bench: KVCacheBench) -> None:
    """A manager that declares eviction asks the order of its context which cached block is given
    up, and takes its word for it.
    """
    order = _Stack()
    run = bench.start(bench.parts.with_eviction(order), num_blocks=6, block_size=4)
    for number in range(6):
        run.start(f"r{number}", [10 * number + n for n in range(4)])
        run.free(f"r{number}")
    held = {content.block_id for content in order}
    if len(held) != 6:
        raise Violation(f"six cached blocks of six requests, and its order was given {sorted(held)}", "all of them")
    run.start("new", range(80, 88))
    taken = set(run.manager.get_block_ids(run.requests["new"])[0])
    if taken != set(order.popped):
        raise Violation(f"its order gave up {order.popped}, and blocks {sorted(taken)} were given out", "those")
    run.finish()


@check("kv_cache_manager")
def importing_it_is_light(bench: KVCacheBench) -> None:
    """Importing the plugin's module pulls in no model library and takes little time: every process
    of every engine does so, whatever it runs. What is heavy is imported by the factory.
    """
    require_light_import(bench.subject)


@check("kv_cache_manager")
def nothing_is_kept_of_the_freed(bench: KVCacheBench) -> None:
    """A manager that has served many requests holds no more objects than after a few."""
    run = bench.start(num_blocks=8, block_size=4)
    _serve(run, 0, FEW)
    few = count_objects(run.manager)
    _serve(run, FEW, MANY)
    if (grown := count_objects(run.manager) - few) > SLACK:
        raise Violation(
            f"{MANY - FEW} requests whose blocks were freed left {grown} objects more in reach of the manager",
            f"at most {SLACK}: what is kept by request goes with its blocks, what is kept by content with the block",
        )


def _serve(run: KVCacheRun, start: int, end: int) -> None:
    for number in range(start, end):
        run.start(f"r{number}", [(number * 7 + n) % 97 for n in range(9)])
        run.decode(f"r{number}", number, 5)
        run.free(f"r{number}")
        del run.requests[f"r{number}"]
