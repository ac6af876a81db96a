"""Requests and managers for the tests of the KV cache."""

import itertools
from typing import Any

from enginecore.interfaces import CachedPrefix, EvictionOrder, KVCacheConfig
from enginecore.kv_cache import BlockPoolManager
from enginecore.messages import EngineCoreRequest
from enginecore.plugin import EvictionContext
from enginecore.request import Request
from enginecore.sampling import SamplingParams
from enginecore_kv_cache import enginecore_components
from enginecore_kv_cache.paged import PagedKVCacheManager
from enginecore_kv_cache.radix import RadixKVCacheManager

MANAGERS: dict[str, Any] = {"paged": PagedKVCacheManager, "radix": RadixKVCacheManager}

EVICTIONS = ("lru", "lfu", "fifo", "ttl")

_numbers = itertools.count()


def make_request(tokens, request_id=None, salt=None, adapter=None, skip=False) -> Request:
    number = next(_numbers)
    params = SamplingParams(max_tokens=None)
    message = EngineCoreRequest(
        request_id=f"r{number}" if request_id is None else request_id,
        prompt_token_ids=list(tokens),
        params=params,
        cache_salt=salt,
        adapter=adapter,
        skip_prefix_cache=skip,
    )
    return Request(message, params, arrival_number=number, arrival_time=0.0, max_model_len=1 << 20)


def make_manager(num_blocks, block_size=4, manager="paged", **options) -> BlockPoolManager:
    made: BlockPoolManager = MANAGERS[manager](KVCacheConfig(num_blocks, block_size, (("layer",),)), **options)
    return made


def make_order(name, **settings) -> EvictionOrder:
    """An order of eviction, built as an engine does."""
    (component,) = [c for c in enginecore_components() if (c.kind, c.name) == ("eviction", name)]
    context = EvictionContext(num_blocks=8, block_size=4, seed=0)
    order: EvictionOrder = component.factory(component.settings(**settings), context)
    return order


def allocate(manager: BlockPoolManager, request, num_tokens, prefix=None) -> list[int]:
    """The blocks that were added; they must fit."""
    added = manager.allocate_slots(request, num_tokens, prefix)
    assert added is not None
    return added[0]


def admit(manager: BlockPoolManager, request, num_tokens=None) -> CachedPrefix:
    """Look up and allocate as a scheduler does; the request's blocks must fit."""
    prefix = manager.get_computed_blocks(request)
    num_tokens = request.num_tokens if num_tokens is None else num_tokens
    allocate(manager, request, num_tokens, prefix)
    return prefix


def serve(manager: BlockPoolManager, request) -> int:
    """A request's whole life without output: admitted, written, published, freed. Returns its cached tokens."""
    prefix = admit(manager, request)
    manager.cache_blocks(request, request.num_tokens)
    manager.free(request)
    manager.check_invariants()
    return prefix.num_tokens
