"""The limits in force, found out from settings, model and KV cache together."""

from dataclasses import dataclass

from enginecore.assembly.measurement import Measured
from enginecore.assembly.records import fill
from enginecore.errors import ConfigurationError
from enginecore.interfaces import KVCacheConfig, ModelInfo
from enginecore.settings import EngineSettings


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits in force, as opposed to those that the settings ask for.

    Attributes:
        kv_cache: The KV cache as sized.
        max_model_len: Tokens of one request at most, prompt and output together.
        max_num_seqs: Running requests at most.
        max_num_waiting: Requests beyond `max_num_seqs` that may wait; None: no limit.
        max_num_batched_tokens: Tokens in a step at most.
        enable_prefix_caching: Off if a layer is not causal.
        enable_chunked_prefill: Off if a layer is not causal.
        seed: The engine's seed.
    """

    kv_cache: KVCacheConfig
    max_model_len: int
    max_num_seqs: int
    max_num_waiting: int | None
    max_num_batched_tokens: int
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    seed: int

    @property
    def num_blocks(self) -> int:
        """KV blocks in the pool."""
        return self.kv_cache.num_blocks

    @property
    def block_size(self) -> int:
        """Tokens per KV block."""
        return self.kv_cache.block_size


def find_limits(settings: EngineSettings, measured: Measured, kv_cache: KVCacheConfig) -> Limits:
    """The limits in force.

    Args:
        settings: The limits that are asked for.
        measured: The model, which may allow less.
        kv_cache: The KV cache as sized, which may hold less.

    Raises:
        ConfigurationError: the combination cannot work; says what would.
    """
    causal = measured.is_causal
    limits = fill(
        Limits,
        settings,
        kv_cache=kv_cache,
        max_model_len=_max_model_len(settings, measured.model, kv_cache),
        enable_prefix_caching=settings.enable_prefix_caching and causal,
        enable_chunked_prefill=settings.enable_chunked_prefill and causal,
    )
    if not limits.enable_chunked_prefill and limits.max_num_batched_tokens < limits.max_model_len:
        why = "" if causal else " (switched off: the model has layers that are not causal)"
        raise ConfigurationError(
            f"without chunked prefill{why} a prompt must fit into one step: max_num_batched_tokens = "
            f"{limits.max_num_batched_tokens} is below max_model_len = {limits.max_model_len}; "
            "raise the one or lower the other"
        )
    return limits


def _max_model_len(settings: EngineSettings, model: ModelInfo, kv_cache: KVCacheConfig) -> int:
    asked = settings.max_model_len
    if asked == "auto":
        return min(model.max_model_len, kv_cache.num_slots)
    wanted = model.max_model_len if asked is None else asked
    if wanted > model.max_model_len:
        raise ConfigurationError(
            f"max_model_len = {wanted} is more than {model.name} was made for: at most {model.max_model_len}"
        )
    if wanted > kv_cache.num_slots:
        needed = -(-wanted // kv_cache.block_size)
        raise ConfigurationError(
            f"one request of max_model_len = {wanted} tokens needs {needed} KV blocks of {kv_cache.block_size}, and "
            f"there are {kv_cache.num_blocks}: raise kv_cache_memory or num_kv_blocks, lower max_model_len to "
            f'{kv_cache.num_slots}, or set max_model_len = "auto" to take what fits'
        )
    return wanted
