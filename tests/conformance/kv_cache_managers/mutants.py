"""KV cache managers with one bug each, and the check that is there for it."""

# pyright: reportAttributeAccessIssue=false

import itertools
import os
from hashlib import sha256
from typing import Any

from enginecore.errors import InvariantError
from enginecore.interfaces import CachedPrefix
from enginecore.kinds import KV_CACHE_MANAGER
from enginecore.kv_cache import BlockHasher, BlockPoolManager, HashIndex
from enginecore.plugin import Component
from enginecore_kv_cache.paged import PagedKVCacheManager

MUTANTS: dict[str, Component] = {}
"""By the check that catches it, and a number if there are several."""


def _component(name: str, make: Any) -> Component:
    return Component(
        kind="kv_cache_manager",
        name=name.replace("_", "-"),
        factory=lambda settings, context: make(context),
        capabilities=frozenset(KV_CACHE_MANAGER.capabilities),
    )


def _paged(cls: Any, context: Any, **changes: Any) -> Any:
    options = {"enable_prefix_caching": context.enable_prefix_caching, "order": context.eviction, **changes}
    return cls(context.config, clock=context.clock, **options)


def add(caught_by: str, make: Any) -> None:
    names = itertools.chain([caught_by], (f"{caught_by}-{number}" for number in itertools.count(2)))
    name = next(name for name in names if name not in MUTANTS)
    MUTANTS[name] = _component(name, make)


def mutant(caught_by: str) -> Any:
    def made(cls: Any) -> Any:
        add(caught_by, lambda context: _paged(cls, context))
        return cls

    return made


def hashed(caught_by: str) -> Any:
    """One whose keys have a bug."""

    def made(hasher: Any) -> Any:
        def make(context: Any) -> Any:
            keys = hasher(context.config.block_size, os.urandom(8))
            return _paged(lambda config, **options: BlockPoolManager(config, HashIndex(), keys, **options), context)

        add(caught_by, make)
        return hasher

    return made


PLAIN = _component("plain", lambda context: _paged(PagedKVCacheManager, context))


@mutant("all_or_nothing")
class TakesWhatThereIs(PagedKVCacheManager):
    def allocate_slots(self, request: Any, num_tokens: int, prefix: Any = None) -> Any:
        added = super().allocate_slots(request, num_tokens, prefix)
        if added is None and prefix is None and self.num_free_blocks:
            held = len(self.get_block_ids(request)[0]) + self.num_free_blocks
            super().allocate_slots(request, held * self.block_size)
        return added


@mutant("what_fits_is_allocated")
class KeepsOneBack(PagedKVCacheManager):
    def allocate_slots(self, request: Any, num_tokens: int, prefix: Any = None) -> Any:
        if self.num_blocks_to_allocate(request, num_tokens, prefix) >= self.num_free_blocks:
            return None
        return super().allocate_slots(request, num_tokens, prefix)


@mutant("allocation_takes_what_it_said")
class CountsHitsAsFree(PagedKVCacheManager):
    def num_blocks_to_allocate(self, request: Any, num_tokens: int, prefix: Any = None) -> int:
        num_new: int = self._demand(request, num_tokens, prefix)[1]
        return num_new


@mutant("a_prefix_stands_first")
class NewOnesFirst(PagedKVCacheManager):
    def allocate_slots(self, request: Any, num_tokens: int, prefix: Any = None) -> Any:
        added = super().allocate_slots(request, num_tokens, prefix)
        return ([*reversed(added[0])],) if added and prefix and prefix.num_tokens else added


@mutant("blocks_have_one_writer")
class GivesAwayTheFirst(PagedKVCacheManager):
    def allocate_slots(self, request: Any, num_tokens: int, prefix: Any = None) -> Any:
        held = [block for table in self._tables.values() for block in table.blocks]
        added = super().allocate_slots(request, num_tokens, prefix)
        return ([*added[0][:-1], held[0]],) if added and added[0] and held else added


@mutant("conservation")
class LosesCount(PagedKVCacheManager):
    published = 0

    def cache_blocks(self, request: Any, num_tokens: int) -> None:
        super().cache_blocks(request, num_tokens)
        self.published += num_tokens >= 3 * self.block_size

    @property
    def num_free_blocks(self) -> int:
        return super().num_free_blocks + self.published


@mutant("freed_blocks_come_back")
class KeepsTheShared(PagedKVCacheManager):
    leaked = 0

    def free(self, request: Any) -> None:
        self.leaked += request.num_cached_tokens > 0
        super().free(request)

    @property
    def num_free_blocks(self) -> int:
        return super().num_free_blocks - self.leaked

    def get_stats(self) -> Any:
        stats = super().get_stats()
        stats.num_free_blocks -= self.leaked
        return stats


@mutant("freeable_blocks_are_counted")
class CountsTheShared(PagedKVCacheManager):
    def num_freeable_blocks(self, requests: Any, keep: Any = None) -> int:
        return len({block for request in requests for block in self.get_block_ids(request)[0]})


@mutant("lookups_change_nothing")
class PeeksTooFar(PagedKVCacheManager):
    def peek_cached_tokens(self, request: Any) -> int:
        tokens = super().peek_cached_tokens(request)
        return tokens + 1 if tokens else 0


@mutant("the_last_token_is_computed")
class HitsInFull(PagedKVCacheManager):
    def _num_hittable_blocks(self, request: Any) -> int:
        if not self._uses_cache(request):
            return 0
        num_blocks: int = request.num_tokens // self.block_size
        self._keys.extend(request, num_blocks)
        return num_blocks


@hashed("hits_are_those_of_the_model")
@hashed("tokens_are_right_under_chaos")
class Unchained(BlockHasher):
    def extend(self, request: Any, num_blocks: int) -> None:
        size = self.block_size
        for number in range(len(request.block_hashes), num_blocks):
            tokens = repr((request.cache_identity, request.token_ids[number * size : number * size + size]))
            request.block_hashes.append(sha256(tokens.encode()).digest())


@hashed("salts_and_adapters_are_kept_apart")
class Unsalted(BlockHasher):
    def root(self, identity: Any) -> bytes:
        return super().root(identity._replace(salt=None))


@hashed("look_alikes_are_told_apart")
class Bytes(BlockHasher):
    def extend(self, request: Any, num_blocks: int) -> None:
        tokens = request.token_ids
        request.token_ids = [token & 0xFF for token in tokens]
        super().extend(request, num_blocks)
        request.token_ids = tokens


@hashed("identities_are_typed")
class Untyped(BlockHasher):
    def root(self, identity: Any) -> bytes:
        return sha256(f"{identity.salt or ''}{identity.adapter or ''}".encode()).digest()


@mutant("only_what_is_published_is_hit")
class PublishesTheShy(PagedKVCacheManager):
    def cache_blocks(self, request: Any, num_tokens: int) -> None:
        shy, request.skip_prefix_cache = request.skip_prefix_cache, False
        super().cache_blocks(request, num_tokens)
        request.skip_prefix_cache = shy


@mutant("cached_content_is_found")
class ForgetsWhenIdle(PagedKVCacheManager):
    def free(self, request: Any) -> None:
        super().free(request)
        super().reset_prefix_cache()


@mutant("cached_content_is_found")
@mutant("full_hits_leave_the_last_token")
class MissesFullHits(PagedKVCacheManager):
    def _num_hittable_blocks(self, request: Any) -> int:
        found = super()._num_hittable_blocks(request)
        return found if request.num_tokens % self.block_size else max(found - 1, 0)


@mutant("reset_forgets_all_or_nothing")
class SaysDone(PagedKVCacheManager):
    def reset_prefix_cache(self) -> bool:
        super().reset_prefix_cache()
        return True


@mutant("stats_agree")
class CountsCachedTwice(PagedKVCacheManager):
    def get_stats(self) -> Any:
        stats = super().get_stats()
        stats.num_cached_blocks *= 2
        return stats


@mutant("its_own_books_hold")
class CannotAdd(PagedKVCacheManager):
    def check_invariants(self) -> None:
        if self.get_stats().num_cached_blocks > 3:
            raise InvariantError("4 blocks are too many")


@mutant("nothing_is_raised")
class KnowsEverybody(PagedKVCacheManager):
    def free(self, request: Any) -> None:
        self._tables[request]
        super().free(request)


@mutant("peeking_touches_no_order")
class LookingIsUsing(PagedKVCacheManager):
    def get_computed_blocks(self, request: Any) -> CachedPrefix:
        prefix = super().get_computed_blocks(request)
        self._pool.share(prefix.block_ids[0])
        self._pool.free(prefix.block_ids[0], "a look-up")
        return prefix


@mutant("lookups_are_counted_once")
class CountsResumptions(PagedKVCacheManager):
    def _count_lookup(self, request: Any, prefix: Any) -> None:
        if self._uses_cache(request):
            self._num_queried_tokens += request.num_prompt_tokens
            self._num_hit_tokens += prefix.num_tokens


@mutant("double_frees_do_no_harm")
class FreesSomebody(PagedKVCacheManager):
    def free(self, request: Any) -> None:
        super().free(request if request in self._tables else next(iter(self._tables), request))


@mutant("ids_do_not_mix")
class ById(PagedKVCacheManager):
    def free(self, request: Any) -> None:
        for other in [other for other in self._tables if other.request_id == request.request_id]:
            super().free(other)


@mutant("same_calls_give_the_same_blocks")
class Shared(PagedKVCacheManager):
    turns = itertools.count()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        empty = self._pool._empty
        if next(Shared.turns) % 2:
            empty.reverse()


add("the_eviction_component_decides", lambda context: _paged(PagedKVCacheManager, context, order=None))


@mutant("nothing_is_kept_of_the_freed")
class Archivist(PagedKVCacheManager):
    def free(self, request: Any) -> None:
        self.__dict__.setdefault("archive", []).append(list(request.token_ids))
        super().free(request)
