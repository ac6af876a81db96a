"""From the executor's KV cache specs and its free memory to a `KVCacheConfig`."""

from collections.abc import Mapping
from dataclasses import dataclass

from enginecore.errors import ConfigurationError
from enginecore.interfaces import KVCacheConfig, KVCacheSpec


def readable(size: int) -> str:
    """Bytes in the largest binary unit that leaves a number of at least 1."""
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >> shift:
            return f"{size / (1 << shift):.2f} {unit}"
    return f"{size} bytes"


@dataclass(frozen=True)
class Budget:
    """Limits that the user sets.

    Attributes:
        memory: Bytes (int), or a fraction of the free memory (float in (0, 1]).
        num_blocks: Number of blocks that overrides it.
    """

    memory: int | float
    num_blocks: int | None = None

    def bytes_of(self, available: int) -> int:
        """Bytes to spend.

        Raises:
            ConfigurationError: more is wanted than is free.
        """
        if isinstance(self.memory, float):
            return int(self.memory * available)
        if self.memory > available:
            raise ConfigurationError(
                f"kv_cache_memory = {readable(self.memory)}, but only {readable(available)} are free; "
                "lower it, or give a fraction such as 0.5"
            )
        return self.memory


def size_kv_cache(specs: Mapping[str, KVCacheSpec], available: int, budget: Budget) -> KVCacheConfig:
    """Blocks that the budget pays for. One block takes its page in every layer.

    Args:
        specs: One per layer.
        available: Bytes that are free for the KV cache.
        budget: Limits that the user sets.

    Raises:
        ConfigurationError: there are no layers to cache, their block sizes differ, or not even one
            block fits.
    """
    if not specs:
        raise ConfigurationError("the executor names no layer with a KV cache: there is nothing to schedule blocks for")
    sizes = sorted({spec.block_size for spec in specs.values()})
    if len(sizes) > 1:
        raise ConfigurationError(
            f"layers with different KV block sizes ({', '.join(map(str, sizes))}) are not supported: "
            "give all layers the same block_size"
        )
    block_bytes = sum(spec.page_size_bytes for spec in specs.values())
    num_blocks = budget.num_blocks
    if num_blocks is None:
        num_blocks = budget.bytes_of(available) // block_bytes
    elif num_blocks * block_bytes > available:
        raise ConfigurationError(
            f"num_kv_blocks = {num_blocks} takes {readable(num_blocks * block_bytes)} "
            f"({block_bytes} bytes a block), but only {readable(available)} are free; "
            f"at most {available // block_bytes} blocks fit"
        )
    if num_blocks < 1:
        raise ConfigurationError(
            f"kv_cache_memory does not pay for one block of {sizes[0]} tokens, which takes {readable(block_bytes)}; "
            f"{readable(available)} are free"
        )
    return KVCacheConfig(num_blocks=num_blocks, block_size=sizes[0], groups=(tuple(specs),))
