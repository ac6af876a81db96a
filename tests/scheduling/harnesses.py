"""The bundled scheduler and KV cache manager in the kit's harness."""

from dataclasses import replace
from typing import Any

from enginecore.messages import EngineCoreRequest
from enginecore.plugin import VictimContext
from enginecore.sampling import SamplingParams
from enginecore.scheduling import ContinuousBatchingScheduler
from enginecore_conformance.chaos import Chaos
from enginecore_conformance.harness import Conditions, SchedulerHarness
from enginecore_conformance.oracle.settings import OracleSettings
from enginecore_kv_cache.paged import PagedKVCacheManager
from enginecore_kv_cache.radix import RadixKVCacheManager
from enginecore_schedulers import enginecore_components
from enginecore_schedulers.fcfs import Fcfs

POLICIES = {"fcfs": Fcfs, "chaos": Chaos}


VICTIMS = ("worst_rank", "newest", "least_computed", "largest")
MANAGERS: dict[str, Any] = {"paged": PagedKVCacheManager, "radix": RadixKVCacheManager}


def make_victim(name):
    """A victim choice, built as an engine does."""
    (component,) = [c for c in enginecore_components() if (c.kind, c.name) == ("victim", name)]
    return component.factory(component.settings(), VictimContext(max_num_seqs=8, seed=0))


def make_harness(*, policy=None, victim=None, manager="paged", order=None, oracle=None, **conditions):
    """A harness with `fcfs`, or another policy, under these conditions; `oracle` holds settings of the executor."""
    chosen = policy or Fcfs()

    def make_manager(context):
        prefix_caching = context.enable_prefix_caching
        return MANAGERS[manager](context.config, enable_prefix_caching=prefix_caching, order=order, clock=context.clock)

    return SchedulerHarness(
        Conditions(oracle=OracleSettings(**oracle or {}), **conditions),
        lambda context: ContinuousBatchingScheduler(chosen, replace(context, victim=victim)),
        make_manager,
    )


def terminal_of(harness, request_id):
    """The last output of a request that has ended."""
    terminal = harness.transcript[request_id].terminal
    assert terminal is not None, f"{request_id} has not ended"
    return terminal


def make_request(request_id, prompt, max_tokens=8, *, salt=None, priority=0.0, stop=(), min_tokens=0, ignore_eos=True):
    """A greedy request; `prompt` is its tokens, or how many of them."""
    tokens = list(prompt) if not isinstance(prompt, int) else [1 + n % 250 for n in range(prompt)]
    params = SamplingParams(
        temperature=0, max_tokens=max_tokens, ignore_eos=ignore_eos, stop_token_ids=stop, min_tokens=min_tokens
    )
    return EngineCoreRequest(
        request_id=request_id, prompt_token_ids=tokens, params=params, cache_salt=salt, priority=priority
    )
