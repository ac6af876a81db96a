"""Measurement of an executor whose weights are loaded: its model, its KV cache, and its free
memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from enginecore.errors import PluginError
from enginecore.interfaces import Executor, KVCacheSpec, ModelInfo


@dataclass(frozen=True)
class Measured:
    """The model of an executor, and the memory for its KV cache.

    Attributes:
        model: The model as loaded.
        kv_cache_specs: One per layer, by its name.
        available_memory: Bytes that are free for the KV cache.
    """

    model: ModelInfo
    kv_cache_specs: Mapping[str, KVCacheSpec]
    available_memory: int

    @property
    def is_causal(self) -> bool:
        """Whether no token attends to a later one, in any layer."""
        return not any(spec.non_causal for spec in self.kv_cache_specs.values())


def measure_executor(executor: Executor, name: str) -> Measured:
    """Ask an executor for its model, its KV cache and its free memory.

    Args:
        executor: An executor with weights loaded and no KV cache allocated yet.
        name: Name of the component, for errors.

    Raises:
        PluginError: an answer is of another type.
    """
    specs, available = executor.get_kv_cache_specs(), executor.determine_available_memory()
    if not isinstance(specs, Mapping) or not all(isinstance(spec, KVCacheSpec) for spec in specs.values()):
        raise PluginError(f"executor {name!r}: get_kv_cache_specs() gave {specs!r}, not KVCacheSpecs by layer name")
    if not isinstance(available, int) or available < 0:
        raise PluginError(f"executor {name!r}: determine_available_memory() gave {available!r}, not a number of bytes")
    return Measured(executor.model_info, specs, available)
