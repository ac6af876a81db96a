"""A KV cache manager that shares nothing: no prefix cache, no references, a list of free blocks."""

from collections.abc import Sequence

from enginecore.errors import ConfigurationError, InvariantError
from enginecore.interfaces import CachedPrefix, KVCacheManager, KVCacheStats
from enginecore.messages import BlockIds
from enginecore.plugin import Component, ComponentSettings, KVCacheManagerContext, hookimpl
from enginecore.request import Request


class FrozenKVCacheManager(KVCacheManager):
    def __init__(self, settings: ComponentSettings, context: KVCacheManagerContext) -> None:
        config = context.config
        if len(config.groups) != 1:
            raise ConfigurationError(f"frozen-kv-cache-manager keeps 1 KV cache group, got {len(config.groups)}")
        self._num_blocks, self._block_size = config.num_blocks, config.block_size
        self._free = list(range(config.num_blocks))
        self._tables: dict[Request, list[int]] = {}

    @property
    def num_blocks(self) -> int:
        return self._num_blocks

    @property
    def block_size(self) -> int:
        return self._block_size

    @property
    def num_free_blocks(self) -> int:
        return len(self._free)

    def get_computed_blocks(self, request: Request) -> CachedPrefix:
        return CachedPrefix(([],), 0)

    def num_blocks_to_allocate(self, request: Request, num_tokens: int, prefix: CachedPrefix | None = None) -> int:
        return max(-(-num_tokens // self._block_size) - len(self._tables.get(request, ())), 0)

    def num_freeable_blocks(self, requests: Sequence[Request], keep: CachedPrefix | None = None) -> int:
        return sum(len(self._tables.get(request, ())) for request in requests)

    def allocate_slots(self, request: Request, num_tokens: int, prefix: CachedPrefix | None = None) -> BlockIds | None:
        need = self.num_blocks_to_allocate(request, num_tokens)
        if need > len(self._free):
            return None
        added = [self._free.pop() for _ in range(need)]
        if added:
            self._tables.setdefault(request, []).extend(added)
        return (added,)

    def cache_blocks(self, request: Request, num_tokens: int) -> None:
        if num_tokens > request.num_tokens or num_tokens > len(self._tables.get(request, ())) * self._block_size:
            raise InvariantError(f"{num_tokens} tokens of request {request.request_id!r} cannot have been written")

    def get_block_ids(self, request: Request) -> BlockIds:
        return (list(self._tables.get(request, ())),)

    def free(self, request: Request) -> None:
        self._free += reversed(self._tables.pop(request, []))

    def reset_prefix_cache(self) -> bool:
        return not self._tables

    def get_stats(self) -> KVCacheStats:
        return KVCacheStats(num_blocks=self._num_blocks, num_free_blocks=len(self._free))

    def check_invariants(self) -> None:
        held = [block for table in self._tables.values() for block in table]
        if sorted([*held, *self._free]) != list(range(self._num_blocks)):
            raise InvariantError(f"blocks {held} are held and {self._free} free, of {self._num_blocks}")


COMPONENT = Component(
    kind="kv_cache_manager",
    name="frozen-kv-cache-manager",
    factory=FrozenKVCacheManager,
    summary="No prefix cache: a list of free blocks.",
)


@hookimpl
def enginecore_components() -> list[Component]:
    return [COMPONENT]
