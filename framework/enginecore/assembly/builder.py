"""Building an engine core, from top to bottom."""

from collections.abc import Callable
from functools import partial
from typing import cast

from enginecore.assembly.compatibility import compatible_components
from enginecore.assembly.components import ChosenComponents, choose_components
from enginecore.assembly.kv_cache_sizing import Budget, size_kv_cache
from enginecore.assembly.limits import Limits, find_limits
from enginecore.assembly.measurement import measure_executor
from enginecore.assembly.records import fill
from enginecore.catalog import LoadedCatalog
from enginecore.clock import Clock
from enginecore.contracts import CheckedScheduler, WatchedKVCacheManager, WatchedScheduler
from enginecore.core.engine_core import EngineCore
from enginecore.core.reporting import ReportingScheduler
from enginecore.interfaces import Executor, ExecutorCapabilities, KVCacheManager, ModelInfo, Scheduler
from enginecore.messages import EngineInfo
from enginecore.plugin import (
    EvictionContext,
    ExecutorContext,
    KVCacheManagerContext,
    SchedulerContext,
    VictimContext,
)
from enginecore.registry import Observers
from enginecore.settings import Loaded


def build_engine_core(loaded: Loaded, clock: Clock) -> EngineCore:
    """Load the model, size the KV cache, and put the chosen components together.

    Raises:
        EngineCoreError: the model, a component or the combination cannot work; says why. Nothing is
            left running.
    """
    chosen = choose_components(loaded)
    executor: Executor = chosen.build("executor", _executor_context(loaded, clock))
    try:
        return _build_around(executor, chosen, loaded, clock)
    except BaseException:
        executor.shutdown()
        raise


def _build_around(executor: Executor, chosen: ChosenComponents, loaded: Loaded, clock: Clock) -> EngineCore:
    settings, capabilities = loaded.settings, executor.capabilities
    measured = measure_executor(executor, chosen.names["executor"])
    budget = Budget(settings.kv_cache_memory, settings.num_kv_blocks)
    kv_cache = size_kv_cache(measured.kv_cache_specs, measured.available_memory, budget)
    limits = find_limits(settings, measured, kv_cache)
    running = compatible_components(chosen, capabilities, limits)
    executor.initialize_from_config(kv_cache)
    manager = _build_kv_cache_manager(running, limits, clock)
    scheduler = _build_scheduler(running, limits, manager, capabilities, clock)
    return EngineCore(
        info=_engine_info(running, limits, measured.model, capabilities),
        scheduler=scheduler,
        executor=executor,
        clock=clock,
        max_num_waiting=limits.max_num_waiting,
        takes_block_hashes=capabilities.model_free
        and (not limits.enable_prefix_caching or running.declares("kv_cache_manager", "ready_hashes")),
    )


def _executor_context(loaded: Loaded, clock: Clock) -> ExecutorContext:
    asked = loaded.settings.max_model_len
    return fill(
        ExecutorContext,
        loaded.settings,
        max_model_len=asked if isinstance(asked, int) else None,
        clock=clock,
        catalog=LoadedCatalog(loaded),
    )


def _build_kv_cache_manager(running: ChosenComponents, limits: Limits, clock: Clock) -> KVCacheManager:
    eviction = running.build("eviction", fill(EvictionContext, limits))
    context = fill(KVCacheManagerContext, limits, config=limits.kv_cache, clock=clock, eviction=eviction)
    manager: KVCacheManager = running.build("kv_cache_manager", context)
    return WatchedKVCacheManager(manager) if running.loaded.settings.debug.check_components else manager


def _build_scheduler(
    running: ChosenComponents,
    limits: Limits,
    manager: KVCacheManager,
    executor: ExecutorCapabilities,
    clock: Clock,
) -> Scheduler:
    victim = running.build("victim", fill(VictimContext, limits))
    context = fill(SchedulerContext, limits, kv_cache_manager=manager, executor=executor, clock=clock, victim=victim)
    make: Callable[[SchedulerContext], Scheduler] = partial(running.build, "scheduler")
    debug = running.loaded.settings.debug
    scheduler = WatchedScheduler(make, context) if debug.check_components else make(context)
    if debug.check_invariants:
        scheduler = cast(Scheduler, CheckedScheduler(scheduler, context))
    return _observed(scheduler, running.loaded.registry.observers, clock)


def _observed(scheduler: Scheduler, observers: Observers, clock: Clock) -> Scheduler:
    """The scheduler, with records of its steps and requests for the observers of plugins, if there are any."""
    if not (observers.has_step_observers or observers.has_request_observers):
        return scheduler
    reporting = ReportingScheduler(
        scheduler,
        clock,
        tell_of_step=observers.step_finished if observers.has_step_observers else None,
        tell_of_request=observers.request_finished if observers.has_request_observers else None,
    )
    return cast(Scheduler, reporting)


def _engine_info(
    running: ChosenComponents, limits: Limits, model: ModelInfo, executor: ExecutorCapabilities
) -> EngineInfo:
    return fill(
        EngineInfo,
        limits,
        model,
        executor,
        model=model.name,
        eos_token_ids=list(model.eos_token_ids),
        components=running.names,
    )
