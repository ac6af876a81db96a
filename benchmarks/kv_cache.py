"""What the KV cache manager `paged` costs: `python benchmarks/kv_cache.py`.

Prints the median and the best of many calls in microseconds, for prompts of 1,000 tokens in blocks of 16.

Seen at best on one core of an AMD EPYC with Python 3.11: admission of 63 blocks 42 (37 of them for the hashes) and
16 more where blocks must be evicted; publishing them 7, freeing them 11; one more block for a decode 0.9.
"""

import statistics
import time
from collections.abc import Callable
from typing import TypeVar

from enginecore.interfaces import KVCacheConfig
from enginecore.messages import EngineCoreRequest
from enginecore.request import Request
from enginecore.sampling import SamplingParams
from enginecore_kv_cache.paged import PagedKVCacheManager

PROMPT_LENGTH = 1_000
OUTPUT_LENGTH = 400
BLOCK_SIZE = 16
NUM_BLOCKS = 4_096  # the pool is full of cached blocks after the first 50 rounds
ROUNDS = 400

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

    def report(self) -> None:
        """Print what was seen."""
        print(f"{'us per call':44s} {'median':>8s} {'best':>8s}")
        for name, durations in self.durations.items():
            print(f"{name:44s} {statistics.median(durations):8.2f} {min(durations):8.2f}")


def make_request(content: int) -> Request:
    """A request whose prompt nobody else has, unless made for the same `content`."""
    tokens = list(range(content * PROMPT_LENGTH, (content + 1) * PROMPT_LENGTH))
    params = SamplingParams(max_tokens=None)
    message = EngineCoreRequest(request_id=str(content), prompt_token_ids=tokens, params=params)
    return Request(message, params, arrival_number=content, arrival_time=0.0, max_model_len=1 << 20)


def serve(manager: PagedKVCacheManager, watch: Stopwatch, content: int) -> None:
    """One request that hits nothing, beside one that hits its whole prompt."""
    first, second = make_request(content), make_request(content)
    prefix = watch("look up, hashing 62 blocks, no hit", manager.get_computed_blocks, first)
    watch("allocate 63 blocks", manager.allocate_slots, first, PROMPT_LENGTH, prefix)
    watch("publish 62 blocks", manager.cache_blocks, first, PROMPT_LENGTH)
    watch("look up, hashing 62 blocks, all hit", manager.get_computed_blocks, second)
    prefix = watch("look up again, all hit", manager.get_computed_blocks, second)
    watch("peek, all hit", manager.peek_cached_tokens, second)
    watch("allocate with 62 blocks shared", manager.allocate_slots, second, PROMPT_LENGTH, prefix)
    first.append(list(range(OUTPUT_LENGTH)))
    for num_tokens in range(PROMPT_LENGTH + BLOCK_SIZE, first.num_tokens, BLOCK_SIZE):
        watch("allocate one block", manager.allocate_slots, first, num_tokens)
        watch("publish one block, hashing it", manager.cache_blocks, first, num_tokens)
    watch("allocate where nothing is needed", manager.allocate_slots, first, PROMPT_LENGTH)
    watch("free 63 blocks, 62 of them shared", manager.free, second)
    watch("free 87 blocks", manager.free, first)


def main() -> None:
    """Measure and print."""
    manager = PagedKVCacheManager(KVCacheConfig(NUM_BLOCKS, BLOCK_SIZE, (("layer",),)))
    watch = Stopwatch()
    for content in range(ROUNDS):
        serve(manager, watch, content)
    manager.check_invariants()
    watch.report()


if __name__ == "__main__":
    main()
