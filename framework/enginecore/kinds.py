"""The engine's kinds of component, one row each.

A new kind is a row here, its interface and its context.
"""

from enginecore.interfaces import (
    EvictionOrder,
    Executor,
    KVCacheManager,
    Scheduler,
    Tokenizer,
    Transport,
    VictimChoice,
)
from enginecore.plugin import (
    EvictionContext,
    ExecutorContext,
    KindSpec,
    KVCacheManagerContext,
    SchedulerContext,
    TokenizerContext,
    TransportContext,
    VictimContext,
)

SCHEDULER = KindSpec(
    name="scheduler",
    summary="Plans each step: which requests, and how many tokens of each.",
    interface=Scheduler,
    context=SchedulerContext,
    table="scheduler",
    default="fcfs",
    capabilities={
        "batch_queue": "Plans a step before the results of earlier ones are in.",
        "chunked_prefill": "May split a prompt over several steps.",
        "out_of_order": "Keeps freed blocks until the steps that may write to them have ended.",
        "prefix_caching": "Takes cached prefixes from the KV cache manager.",
        "victim": "Preempts the request that the victim choice of its context names.",
    },
    kit="enginecore_conformance.schedulers",
)

VICTIM = KindSpec(
    name="victim",
    summary="Chooses the request to preempt when KV blocks run out.",
    interface=VictimChoice,
    context=VictimContext,
    table="victim",
    default="worst_rank",
    part_of="scheduler",
    kit="enginecore_conformance.victims",
)

KV_CACHE_MANAGER = KindSpec(
    name="kv_cache_manager",
    summary="Gives KV blocks to requests, and finds cached prefixes.",
    interface=KVCacheManager,
    context=KVCacheManagerContext,
    table="kv_cache_manager",
    default="paged",
    capabilities={
        "eviction": "Evicts cached content in the order that its context gives.",
        "prefix_caching": "Finds cached prefixes.",
        "ready_hashes": "Uses the block hashes that a request brings, if it brings any, and asks for no others.",
    },
    kit="enginecore_conformance.kv_cache_managers",
)

EVICTION = KindSpec(
    name="eviction",
    summary="Orders cached blocks for eviction.",
    interface=EvictionOrder,
    context=EvictionContext,
    table="eviction",
    default="lru",
    part_of="kv_cache_manager",
    kit="enginecore_conformance.evictions",
)

EXECUTOR = KindSpec(
    name="executor",
    summary="Runs the model.",
    interface=Executor,
    context=ExecutorContext,
    table="executor",
    default="single",
    kit="enginecore_conformance.executors",
)

TRANSPORT = KindSpec(
    name="transport",
    summary="Connects clients to the engine core.",
    interface=Transport,
    context=TransportContext,
    table="transport",
    default="inproc",
    capabilities={
        "channels": "Carries messages between processes: listen and open.",
        "sync": "Runs the engine core itself, and makes a synchronous client for it: connect.",
    },
    kit="enginecore_conformance.transports",
    opens_network=True,
)

TOKENIZER = KindSpec(
    name="tokenizer",
    summary="Turns text into tokens and back.",
    interface=Tokenizer,
    context=TokenizerContext,
    table="tokenization",  # the setting `tokenizer` is the path of a tokenizer, as in other engines
    default="auto",
)

KINDS = (SCHEDULER, VICTIM, KV_CACHE_MANAGER, EVICTION, EXECUTOR, TRANSPORT, TOKENIZER)
"""In the order in which they are listed to users."""
