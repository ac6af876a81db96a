"""The limits in force: settings, model, memory and components taken together, and checked together."""

from collections.abc import Mapping
from dataclasses import dataclass

from enginecore.assembly.kv_cache_sizing import Budget, size_kv_cache
from enginecore.errors import ConfigurationError
from enginecore.interfaces import ExecutorCapabilities, KVCacheConfig, KVCacheSpec, ModelInfo
from enginecore.plugin import Component
from enginecore.settings import EngineSettings


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is in force, as opposed to what was asked for.

    Attributes:
        kv_cache: As sized.
        max_model_len: Tokens of one request at most, prompt and output together.
        max_num_seqs: Running requests at most.
        max_num_batched_tokens: Tokens in a step at most.
        enable_prefix_caching: Off if a layer is not causal.
        enable_chunked_prefill: Off if a layer is not causal.
    """

    kv_cache: KVCacheConfig
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    enable_prefix_caching: bool
    enable_chunked_prefill: bool


def find_limits(settings: EngineSettings, model: ModelInfo, specs: Mapping[str, KVCacheSpec], available: int) -> Limits:
    """What is in force.

    Args:
        settings: What was asked for.
        model: What the executor says of the model.
        specs: What it says of its KV cache, per layer.
        available: Bytes that are free for the KV cache.

    Raises:
        ConfigurationError: the final combination cannot work; says what would.
    """
    causal = not any(spec.non_causal for spec in specs.values())
    kv_cache = size_kv_cache(specs, available, Budget(settings.kv_cache_memory, settings.num_kv_blocks))
    limits = Limits(
        kv_cache=kv_cache,
        max_model_len=_max_model_len(settings, model, kv_cache),
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
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


def check_capabilities(components: Mapping[str, Component], executor: ExecutorCapabilities, limits: Limits) -> None:
    """Refuse pairs of components that cannot work together.

    Raises:
        ConfigurationError: names both, and says what to change.
    """
    scheduler, manager = components["scheduler"], components["kv_cache_manager"]
    name = components["executor"].name
    if executor.max_concurrent_batches > 1 and "batch_queue" not in scheduler.capabilities:
        raise ConfigurationError(
            f"executor {name!r} keeps {executor.max_concurrent_batches} batches in flight, and scheduler "
            f"{scheduler.name!r} does not declare 'batch_queue': choose another scheduler, or run the executor with "
            "one batch in flight"
        )
    if not executor.in_order and "out_of_order" not in scheduler.capabilities:
        raise ConfigurationError(
            f"executor {name!r} does not run steps in order, and scheduler {scheduler.name!r} does not declare "
            "'out_of_order', so it may give out blocks that are still written to: choose another scheduler"
        )
    if limits.enable_chunked_prefill and "chunked_prefill" not in scheduler.capabilities:
        raise ConfigurationError(
            f"scheduler {scheduler.name!r} does not declare 'chunked_prefill': set enable_chunked_prefill = false, "
            "with max_num_batched_tokens of at least max_model_len, or choose another scheduler"
        )
    for component in (scheduler, manager):
        if limits.enable_prefix_caching and "prefix_caching" not in component.capabilities:
            raise ConfigurationError(
                f"{component.kind} {component.name!r} does not declare 'prefix_caching': "
                f"set enable_prefix_caching = false, or choose another {component.kind}"
            )
