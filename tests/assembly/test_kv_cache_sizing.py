import pytest

from enginecore.assembly.kv_cache_sizing import Budget, size_kv_cache
from enginecore.errors import ConfigurationError
from enginecore.interfaces import KVCacheSpec

TWO_LAYERS = {"a": KVCacheSpec(block_size=16, page_size_bytes=1000), "b": KVCacheSpec(16, 3000)}


def test_a_fraction_of_the_free_memory_pays_for_whole_blocks_over_all_layers() -> None:
    config = size_kv_cache(TWO_LAYERS, 100_000, Budget(0.5))
    assert (config.num_blocks, config.block_size, config.num_slots) == (12, 16, 192)
    assert config.groups == (("a", "b"),)


def test_a_number_of_bytes_is_taken_as_it_is() -> None:
    assert size_kv_cache(TWO_LAYERS, 100_000, Budget(8_000)).num_blocks == 2


def test_the_number_of_blocks_overrides_the_memory() -> None:
    assert size_kv_cache(TWO_LAYERS, 100_000, Budget(0.5, num_blocks=25)).num_blocks == 25


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (Budget(100_001), r"97.66 KiB, but only 97.66 KiB are free"),
        (Budget(3_999), "does not pay for one block of 16 tokens, which takes 3.91 KiB"),
        (Budget(0.5, num_blocks=26), "at most 25 blocks fit"),
    ],
)
def test_what_does_not_fit_says_what_would(budget: Budget, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        size_kv_cache(TWO_LAYERS, 100_000, budget)


def test_layers_with_different_block_sizes_are_refused_by_size() -> None:
    """Field case 51."""
    specs = {"a": KVCacheSpec(2, 100), "b": KVCacheSpec(64, 100)}
    with pytest.raises(ConfigurationError, match=r"different KV block sizes \(2, 64\)"):
        size_kv_cache(specs, 100_000, Budget(0.5))


def test_a_model_without_kv_cache_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no layer with a KV cache"):
        size_kv_cache({}, 100_000, Budget(0.5))
