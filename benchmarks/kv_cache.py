"""What the KV cache managers and the orders of eviction cost: `python benchmarks/kv_cache.py`.

Prints the median and the best of many calls in microseconds, for prompts of 1,000 tokens in blocks of 16, with each
manager; then what it costs to take one block from a pool full of cached ones, with each order of eviction.
"""

import statistics
import time
from collections.abc import Callable
from typing import TypeVar

from enginecore.interfaces import EvictionOrder, KVCacheConfig, KVCacheManager
from enginecore.kv_cache import Lru
from enginecore.messages import EngineCoreRequest
from enginecore.request import Request
from enginecore.sampling import SamplingParams
from enginecore_kv_cache.evictions import Fifo, Lfu, Ttl
from enginecore_kv_cache.paged import PagedKVCacheManager
from enginecore_kv_cache.radix import RadixKVCacheManager

PROMPT_LENGTH = 1_000
OUTPUT_LENGTH = 400
BLOCK_SIZE = 16
NUM_BLOCKS = 4_096  # the pool is full of cached blocks after the first 50 rounds
ROUNDS = 400
CONFIG = KVCacheConfig(NUM_BLOCKS, BLOCK_SIZE, (("layer",),))

Result = TypeVar("Result")


class Stopwatch:
    """Collects durations by name."""

    def __init__(self) -> None:
        self.durations: dict[str, list[float]] = {}

    def __call__(self, name: str, action: Callable[..., Result], *arguments: object) -> Result:
        """Call `action` and note how long it took."""
        start = time.perf_counter()
        result = action(*arguments)
        self.durations.setdefault(name, []).append((time.perf_counter() - start) * 1e6)
        return result


def report(title: str, watches: dict[str, Stopwatch]) -> None:
    """Print what was seen, a column for each stopwatch."""
    print(f"\n{title:44s}" + "".join(f"{name:>20s}" for name in watches))
    print(f"{'us per call':44s}" + f"{'median':>12s}{'best':>8s}" * len(watches))
    for name in next(iter(watches.values())).durations:
        columns = [watch.durations[name] for watch in watches.values()]
        print(f"{name:44s}" + "".join(f"{statistics.median(column):12.2f}{min(column):8.2f}" for column in columns))


def make_request(content: int, length: int = PROMPT_LENGTH) -> Request:
    """A request whose prompt nobody else has, unless made for the same `content`."""
    tokens = list(range(content * PROMPT_LENGTH, content * PROMPT_LENGTH + length))
    params = SamplingParams(max_tokens=None)
    message = EngineCoreRequest(request_id=str(content), prompt_token_ids=tokens, params=params)
    return Request(message, params, arrival_number=content, arrival_time=0.0, max_model_len=1 << 20)


def serve(manager: KVCacheManager, watch: Stopwatch, content: int) -> None:
    """One request that hits nothing, beside one that hits its whole prompt."""
    first, second = make_request(content), make_request(content)
    prefix = watch("look up for the first time, no hit", manager.get_computed_blocks, first)
    watch("allocate 63 blocks, evicting as many", manager.allocate_slots, first, PROMPT_LENGTH, prefix)
    watch("publish 62 blocks", manager.cache_blocks, first, PROMPT_LENGTH)
    watch("look up for the first time, all hit", manager.get_computed_blocks, second)
    prefix = watch("look up again, all hit", manager.get_computed_blocks, second)
    watch("peek, all hit", manager.peek_cached_tokens, second)
    watch("allocate with 62 blocks shared", manager.allocate_slots, second, PROMPT_LENGTH, prefix)
    first.append(list(range(OUTPUT_LENGTH)))
    for num_tokens in range(PROMPT_LENGTH + BLOCK_SIZE, first.num_tokens, BLOCK_SIZE):
        watch("allocate one block, evicting one", manager.allocate_slots, first, num_tokens)
        watch("publish one block", manager.cache_blocks, first, num_tokens)
    watch("allocate where nothing is needed", manager.allocate_slots, first, PROMPT_LENGTH)
    watch("free 63 blocks, 62 of them shared", manager.free, second)
    watch("free 87 blocks", manager.free, first)


def evict(order: EvictionOrder, watch: Stopwatch) -> None:
    """A pool full of prefixes of 4 blocks, half of which were hit, from which one request takes block after block."""
    manager = PagedKVCacheManager(CONFIG, order=order)
    prompts = NUM_BLOCKS // 4
    for content in [*range(prompts), *range(0, prompts, 2)]:
        request = make_request(content, 4 * BLOCK_SIZE)
        manager.allocate_slots(request, request.num_tokens, manager.get_computed_blocks(request))
        manager.cache_blocks(request, request.num_tokens)
        manager.free(request)
    taker = make_request(prompts, NUM_BLOCKS * BLOCK_SIZE)
    for num_blocks in range(1, NUM_BLOCKS + 1):
        watch("evict one block of 4,096", manager.allocate_slots, taker, num_blocks * BLOCK_SIZE)


def main() -> None:
    """Measure and print."""
    managers: dict[str, KVCacheManager] = {"paged": PagedKVCacheManager(CONFIG), "radix": RadixKVCacheManager(CONFIG)}
    watches = {name: Stopwatch() for name in managers}
    for content in range(ROUNDS):
        for name, manager in managers.items():
            serve(manager, watches[name], content)
    for manager in managers.values():
        manager.check_invariants()
    report("managers", watches)

    orders: dict[str, EvictionOrder] = {"lru": Lru(), "lfu": Lfu(), "fifo": Fifo(), "ttl": Ttl(300.0)}
    watches = {name: Stopwatch() for name in orders}
    for name, order in orders.items():
        evict(order, watches[name])
    report("orders of eviction", watches)


if __name__ == "__main__":
    main()
