"""From settings and registry to a running engine core."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from enginecore.assembly.choice import choose_components, without_idle
from enginecore.assembly.limits import Limits, check_capabilities, find_limits
from enginecore.clock import Clock
from enginecore.contracts import WatchedKVCacheManager, WatchedScheduler
from enginecore.core.engine_core import EngineCore
from enginecore.core.reporting import Reporter
from enginecore.errors import PluginError
from enginecore.interfaces import Executor, KVCacheManager, KVCacheSpec, ModelInfo, Scheduler
from enginecore.messages import EngineInfo
from enginecore.plugin import (
    Component,
    EvictionContext,
    ExecutorContext,
    KVCacheManagerContext,
    SchedulerContext,
    VictimContext,
)
from enginecore.settings import EngineSettings, Loaded


def build_engine_core(loaded: Loaded, clock: Clock) -> EngineCore:
    """Load the model, size the KV cache, and put the chosen components together.

    Raises:
        EngineCoreError: the model, a component or the combination cannot work; says why. Nothing is left running.
    """
    components = choose_components(loaded)
    executor: Executor = _build(components["executor"], loaded, _executor_context(loaded.settings, clock))
    try:
        return _assemble(loaded, components, executor, clock)
    except BaseException:
        executor.shutdown()
        raise


def _build(component: Component, loaded: Loaded, context: Any) -> Any:
    return loaded.registry.build(component, loaded.settings.component(component.kind).settings, context)


def _assemble(loaded: Loaded, components: Mapping[str, Component], executor: Executor, clock: Clock) -> EngineCore:
    specs, available = _measured(components["executor"].name, executor)
    model = executor.model_info
    limits = find_limits(loaded.settings, model, specs, available)
    check_capabilities(components, executor.capabilities, limits)
    components = without_idle(components, limits)
    executor.initialize_from_config(limits.kv_cache)
    manager = _build_kv_cache_manager(loaded, components, limits, clock)
    scheduler = _build_scheduler(loaded, components, limits, manager, executor, clock)
    return EngineCore(
        info=_info(loaded.settings, components, executor, model, limits),
        scheduler=scheduler,
        executor=executor,
        reporter=Reporter(loaded.registry.observers, scheduler, clock),
        clock=clock,
        max_num_waiting=loaded.settings.max_num_waiting,
        check_invariants=loaded.settings.debug.check_invariants,
        takes_block_hashes=executor.capabilities.model_free
        and (not limits.enable_prefix_caching or "ready_hashes" in components["kv_cache_manager"].capabilities),
    )


def _build_kv_cache_manager(
    loaded: Loaded, components: Mapping[str, Component], limits: Limits, clock: Clock
) -> KVCacheManager:
    cache = limits.kv_cache
    eviction = _build_part(
        "eviction",
        loaded,
        components,
        EvictionContext(num_blocks=cache.num_blocks, block_size=cache.block_size, seed=loaded.settings.seed),
    )
    context = KVCacheManagerContext(
        config=cache, enable_prefix_caching=limits.enable_prefix_caching, clock=clock, eviction=eviction
    )
    manager: KVCacheManager = _build(components["kv_cache_manager"], loaded, context)
    return WatchedKVCacheManager(manager) if loaded.settings.debug.check_components else manager


def _build_scheduler(
    loaded: Loaded,
    components: Mapping[str, Component],
    limits: Limits,
    manager: KVCacheManager,
    executor: Executor,
    clock: Clock,
) -> Scheduler:
    victim = _build_part(
        "victim", loaded, components, VictimContext(max_num_seqs=limits.max_num_seqs, seed=loaded.settings.seed)
    )
    context = SchedulerContext(
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_model_len=limits.max_model_len,
        enable_chunked_prefill=limits.enable_chunked_prefill,
        kv_cache_manager=manager,
        executor=executor.capabilities,
        clock=clock,
        victim=victim,
    )
    make: Callable[[SchedulerContext], Scheduler] = partial(_build, components["scheduler"], loaded)
    return WatchedScheduler(make, context) if loaded.settings.debug.check_components else make(context)


def _build_part(kind: str, loaded: Loaded, components: Mapping[str, Component], context: Any) -> Any:
    """The component of this kind, if anybody uses one."""
    return _build(components[kind], loaded, context) if kind in components else None


def _measured(name: str, executor: Executor) -> tuple[Mapping[str, KVCacheSpec], int]:
    """What the executor says of its KV cache and its memory.

    Raises:
        PluginError: it says something else.
    """
    specs, available = executor.get_kv_cache_specs(), executor.determine_available_memory()
    if not isinstance(specs, Mapping) or not all(isinstance(spec, KVCacheSpec) for spec in specs.values()):
        raise PluginError(f"executor {name!r}: get_kv_cache_specs() gave {specs!r}, not KVCacheSpecs by layer name")
    if not isinstance(available, int) or available < 0:
        raise PluginError(f"executor {name!r}: determine_available_memory() gave {available!r}, not a number of bytes")
    return specs, available


def _executor_context(settings: EngineSettings, clock: Clock) -> ExecutorContext:
    asked = settings.max_model_len
    return ExecutorContext(
        model=settings.model,
        dtype=settings.dtype,
        device=settings.device,
        max_model_len=asked if isinstance(asked, int) else None,
        block_size=settings.block_size,
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        seed=settings.seed,
        clock=clock,
    )


def _info(
    settings: EngineSettings,
    components: Mapping[str, Component],
    executor: Executor,
    model: ModelInfo,
    limits: Limits,
) -> EngineInfo:
    return EngineInfo(
        model=model.name,
        max_model_len=limits.max_model_len,
        vocab_size=model.vocab_size,
        eos_token_ids=list(model.eos_token_ids),
        num_blocks=limits.kv_cache.num_blocks,
        block_size=limits.kv_cache.block_size,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        enable_prefix_caching=limits.enable_prefix_caching,
        enable_chunked_prefill=limits.enable_chunked_prefill,
        max_concurrent_batches=executor.capabilities.max_concurrent_batches,
        components={kind: component.name for kind, component in components.items()},
        seed=settings.seed,
        dtype=model.dtype,
        device=model.device,
    )
