"""A KV cache manager under watch: what the scheduler asks of it, and what it does."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from enginecore.contracts.broken import BrokenRule
from enginecore.interfaces import CachedPrefix, KVCacheManager, KVCacheStats, PublishedBlocks
from enginecore.messages import BlockIds
from enginecore.request import Request


def _flat(block_ids: BlockIds) -> list[int]:
    return list(chain.from_iterable(block_ids))


class WatchedKVCacheManager(KVCacheManager):
    """Fills `KVCacheManager` by another one, and keeps its own books of who holds what.

    Attributes:
        written: By request, how many of its tokens stand in its blocks; a scheduler's watch counts on. Without one,
            what the request itself says is believed.
    """

    def __init__(self, manager: KVCacheManager) -> None:
        self.written: dict[Request, int] | None = None
        self._manager = manager
        self._held: dict[Request, BlockIds] = {}
        self._references: Counter[int] = Counter()
        self._looked_up: dict[Request, CachedPrefix] = {}  # since the last change
        self._num_published: Counter[Request] = Counter()  # in blocks
        self._lookups = (0, 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    @property
    def num_blocks(self) -> int:
        return self._manager.num_blocks

    @property
    def block_size(self) -> int:
        return self._manager.block_size

    @property
    def num_free_blocks(self) -> int:
        return self._manager.num_free_blocks

    @property
    def holders(self) -> Iterator[Request]:
        """Requests that hold blocks."""
        return iter(self._held)

    # -- lookups ---------------------------------------------------------------------------------------------------

    def get_computed_blocks(self, request: Request) -> CachedPrefix:
        prefix = self._manager.get_computed_blocks(request)
        self._looked_up[request] = prefix
        blocks = _flat(prefix.block_ids)
        name = f"get_computed_blocks({request.request_id!r}) gave {prefix}"
        if not 0 <= prefix.num_tokens < request.num_tokens:
            _manager_breaks("the_last_token_is_computed", f"{name}, and the request has {request.num_tokens} tokens")
        if request.skip_prefix_cache and prefix.num_tokens:
            _manager_breaks("hits_are_those_of_the_model", f"{name}, but it is to skip the prefix cache")
        for group in prefix.block_ids:
            if len(group) * self.block_size < prefix.num_tokens:
                _manager_breaks("hits_are_those_of_the_model", f"{name}: {len(group)} blocks hold fewer tokens")
        self._check_ids(blocks, name)
        self._check_free("lookups_change_nothing", name)
        return prefix

    def peek_cached_tokens(self, request: Request) -> int:
        num_tokens = self._manager.peek_cached_tokens(request)
        self._check_free("lookups_change_nothing", f"peek_cached_tokens({request.request_id!r})")
        return num_tokens

    def num_blocks_to_allocate(self, request: Request, num_tokens: int, prefix: CachedPrefix | None = None) -> int:
        self._check_prefix(request, prefix)
        return self._manager.num_blocks_to_allocate(request, num_tokens, prefix)

    def num_freeable_blocks(self, requests: Sequence[Request], keep: CachedPrefix | None = None) -> int:
        num_blocks = self._manager.num_freeable_blocks(requests, keep)
        given_up = Counter(block for request in requests for block in _flat(self._held.get(request, ())))
        kept = set(_flat(keep.block_ids)) if keep else set()
        right = sum(self._references[block] == n for block, n in given_up.items() if block not in kept)
        if num_blocks != right:
            names = [request.request_id for request in requests]
            _manager_breaks(
                "freeable_blocks_are_counted", f"num_freeable_blocks of {names} gave {num_blocks}; right is {right}"
            )
        return num_blocks

    # -- changes ---------------------------------------------------------------------------------------------------

    def allocate_slots(self, request: Request, num_tokens: int, prefix: CachedPrefix | None = None) -> BlockIds | None:
        self._check_prefix(request, prefix)
        manager, name = self._manager, f"allocate_slots({request.request_id!r}, {num_tokens}, {prefix})"
        need, free = manager.num_blocks_to_allocate(request, num_tokens, prefix), manager.num_free_blocks
        added = manager.allocate_slots(request, num_tokens, prefix)
        if added is None:
            if need <= free:
                _manager_breaks("what_fits_is_allocated", f"{name} gave None, but needs {need} blocks of {free} free")
            if manager.num_free_blocks != free:
                _manager_breaks(
                    "all_or_nothing", f"{name} gave None, and of {free} free blocks {manager.num_free_blocks} are left"
                )
            self._check_table(request, "all_or_nothing", name)
            return None
        if (taken := free - manager.num_free_blocks) != need:
            _manager_breaks(
                "allocation_takes_what_it_said", f"{name} took {taken} blocks; num_blocks_to_allocate gave {need}"
            )
        self._hold(request, added, prefix, name)
        if any(len(group) * self.block_size < num_tokens for group in self._held.get(request, ([],))):
            _manager_breaks("all_or_nothing", f"{name} gave {added}: too few slots")
        self._check_table(request, "all_or_nothing", name)
        return added

    def _hold(self, request: Request, added: BlockIds, prefix: CachedPrefix | None, name: str) -> None:
        shared = prefix.block_ids if prefix else tuple([] for _ in added)
        for group, cached in zip(added, shared, strict=True):
            if group[: len(cached)] != list(cached):
                _manager_breaks("a_prefix_stands_first", f"{name} gave {group}; right is {list(cached)} first")
        new = [block for group, cached in zip(added, shared, strict=True) for block in group[len(cached) :]]
        self._check_ids([*new, *_flat(shared)], name)
        if taken := [block for block in new if block in self._references]:
            _manager_breaks("blocks_have_one_writer", f"{name} gave out blocks {taken}, which others hold")
        if request not in self._held:
            self._num_published[request] = len(shared[0]) if shared else 0
            if self.written is not None:
                self.written[request] = prefix.num_tokens if prefix else 0
        if not any(added):
            return
        self._changed()
        before = self._held.get(request, tuple([] for _ in added))
        self._held[request] = tuple([*old, *group] for old, group in zip(before, added, strict=True))
        self._references.update(_flat(added))
        self._check_free("conservation", name)

    def cache_blocks(self, request: Request, num_tokens: int) -> None:
        written = request.num_computed_tokens if self.written is None else self.written.get(request, 0)
        name = f"cache_blocks({request.request_id!r}, {num_tokens})"
        if num_tokens > written:
            _scheduler_breaks("only_what_is_written_is_published", f"{name}, but {written} tokens are written")
        num_full = num_tokens // self.block_size
        if num_full > self._num_published[request]:
            self._num_published[request] = num_full
            self._changed()
        self._manager.cache_blocks(request, num_tokens)
        self._check_table(request, "conservation", name)
        self._check_free("conservation", name)

    def get_block_ids(self, request: Request) -> BlockIds:
        return self._manager.get_block_ids(request)

    def free(self, request: Request) -> None:
        held = self._held.pop(request, None)
        self._num_published.pop(request, None)
        if self.written is not None:
            self.written.pop(request, None)
        if held is not None:
            self._references.subtract(_flat(held))
            for block in _flat(held):
                if not self._references[block]:
                    del self._references[block]
            self._changed()
        self._manager.free(request)
        name = f"free({request.request_id!r})"
        if any(self._manager.get_block_ids(request)):
            _manager_breaks("freed_blocks_come_back", f"after {name} it holds {self._manager.get_block_ids(request)}")
        self._check_free("freed_blocks_come_back", name)

    # Not judged: the books above know of no blocks without a request.

    def set_aside(self, request: Request, first_block: int, num_blocks: int) -> list[int]:
        return self._manager.set_aside(request, first_block, num_blocks)

    def give_back(self, block_ids: Sequence[int]) -> None:
        self._manager.give_back(block_ids)

    def take_published(self) -> list[PublishedBlocks]:
        return self._manager.take_published()

    def take_evicted(self) -> list[int]:
        return self._manager.take_evicted()

    def reset_prefix_cache(self) -> bool:
        done = self._manager.reset_prefix_cache()
        if done is not (not self._held):
            names = [request.request_id for request in self._held]
            _manager_breaks(
                "reset_forgets_all_or_nothing", f"reset_prefix_cache() gave {done} while {names} hold blocks"
            )
        if done:
            self._changed()
            if cached := self._manager.get_stats().num_cached_blocks:
                _manager_breaks(
                    "reset_forgets_all_or_nothing", f"{cached} blocks are cached after reset_prefix_cache()"
                )
        self._check_free("reset_forgets_all_or_nothing", "reset_prefix_cache()")
        return done

    def get_stats(self) -> KVCacheStats:
        stats = self._manager.get_stats()
        gauges = stats.num_blocks, stats.num_free_blocks
        if gauges != (self.num_blocks, self.num_free_blocks) or not 0 <= stats.num_cached_blocks <= gauges[1]:
            _manager_breaks(
                "stats_agree",
                f"get_stats() gave {stats}, with {self.num_free_blocks} blocks free of {self.num_blocks}",
            )
        queries, hits = self._lookups
        if not (queries <= stats.queries and hits <= stats.hits <= stats.queries):
            _manager_breaks("stats_agree", f"get_stats() gave {stats} after {queries} queries and {hits} hits")
        self._lookups = stats.queries, stats.hits
        return stats

    def check_invariants(self) -> None:
        self._manager.check_invariants()

    # -- rules -----------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        """No prefix that was looked up is valid any more."""
        self._looked_up.clear()

    def _check_prefix(self, request: Request, prefix: CachedPrefix | None) -> None:
        if prefix is None or not any(prefix.block_ids):
            return
        if request in self._held:
            _scheduler_breaks(
                "cached_prefixes_are_fresh",
                f"request {request.request_id!r} holds blocks and brings a prefix: {prefix}",
            )
        if self._looked_up.get(request) != prefix:
            _scheduler_breaks(
                "cached_prefixes_are_fresh",
                f"request {request.request_id!r} brings {prefix}, which was not looked up for it since blocks were "
                "allocated, published or freed",
            )

    def _check_ids(self, blocks: Iterable[int], name: str) -> None:
        for block, times in Counter(blocks).items():
            if times > 1 or not 0 <= block < self.num_blocks:
                _manager_breaks(
                    "conservation", f"{name}: block {block} comes {times} times, of a pool of {self.num_blocks}"
                )

    def _check_table(self, request: Request, rule: str, name: str) -> None:
        table, right = self._manager.get_block_ids(request), self._held.get(request)
        if tuple(map(list, table)) != right if right is not None else any(table):
            _manager_breaks(rule, f"after {name} it holds {table}; by what it was given it should hold {right}")

    def _check_free(self, rule: str, name: str) -> None:
        right = self.num_blocks - len(self._references)
        if self._manager.num_free_blocks != right:
            _manager_breaks(rule, f"after {name} {self._manager.num_free_blocks} blocks are free; right is {right}")


def _manager_breaks(rule: str, seen: str) -> None:
    raise BrokenRule("kv_cache_manager", rule, seen)


def _scheduler_breaks(rule: str, seen: str) -> None:
    raise BrokenRule("scheduler", rule, seen)
