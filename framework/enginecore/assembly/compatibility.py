"""Compatibility of the chosen components with one another and with the limits in force."""

from enginecore.assembly.components import ChosenComponents
from enginecore.assembly.limits import Limits
from enginecore.errors import ConfigurationError
from enginecore.interfaces import ExecutorCapabilities
from enginecore.kinds import EVICTION


def compatible_components(chosen: ChosenComponents, executor: ExecutorCapabilities, limits: Limits) -> ChosenComponents:
    """The chosen components that have something to do under these limits.

    Raises:
        ConfigurationError: two of them cannot work together, or the settings choose a part that
            would do nothing; names them, and says what to change.
    """
    _check_batches(chosen, executor)
    _check_chunked_prefill(chosen, limits)
    _check_prefix_caching(chosen, limits)
    if limits.enable_prefix_caching or EVICTION.name not in chosen.by_kind:
        return chosen
    remedy = "set enable_prefix_caching = true (a model that is not causal cannot have it)"
    return chosen.without(EVICTION, "prefix caching is off", remedy)


def _check_batches(chosen: ChosenComponents, executor: ExecutorCapabilities) -> None:
    name, scheduler = chosen.names["executor"], chosen.names["scheduler"]
    if executor.max_concurrent_batches > 1 and not chosen.declares("scheduler", "batch_queue"):
        raise ConfigurationError(
            f"executor {name!r} keeps {executor.max_concurrent_batches} batches in flight, and scheduler "
            f"{scheduler!r} does not declare 'batch_queue': choose another scheduler, or run the executor with "
            "one batch in flight"
        )
    if not executor.in_order and not chosen.declares("scheduler", "out_of_order"):
        raise ConfigurationError(
            f"executor {name!r} does not run steps in order, and scheduler {scheduler!r} does not declare "
            "'out_of_order', so it may give out blocks that are still written to: choose another scheduler"
        )


def _check_chunked_prefill(chosen: ChosenComponents, limits: Limits) -> None:
    if limits.enable_chunked_prefill and not chosen.declares("scheduler", "chunked_prefill"):
        raise ConfigurationError(
            f"scheduler {chosen.names['scheduler']!r} does not declare 'chunked_prefill': set "
            "enable_chunked_prefill = false, with max_num_batched_tokens of at least max_model_len, or choose another "
            "scheduler"
        )


def _check_prefix_caching(chosen: ChosenComponents, limits: Limits) -> None:
    for kind in ("scheduler", "kv_cache_manager"):
        if limits.enable_prefix_caching and not chosen.declares(kind, "prefix_caching"):
            raise ConfigurationError(
                f"{kind} {chosen.names[kind]!r} does not declare 'prefix_caching': "
                f"set enable_prefix_caching = false, or choose another {kind}"
            )
