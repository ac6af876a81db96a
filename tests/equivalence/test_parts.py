"""The same tokens with every KV cache manager, victim choice and order of eviction, in pools that are too small."""

from collections import Counter

import pytest

from enginecore.interfaces import EvictionOrder
from enginecore.messages import EngineCoreRequest
from enginecore.plugin import Component
from enginecore.sampling import SamplingParams
from enginecore_conformance.workloads import BrickWorkload
from enginecore_kv_cache import enginecore_components
from tests.equivalence.engines import OracleEngine
from tests.equivalence.test_grid import grid_settings, make_requests
from tests.forwarding import forwarding

MANAGERS = ("paged", "radix")
VICTIMS = ("worst_rank", "newest", "least_computed", "largest")
EVICTIONS = ("lru", "lfu", "fifo", "ttl")
DEPTHS = ((1, False), (2, True), (4, False))


def run(depth, feeds_tokens, components=(), **settings):
    engine = OracleEngine(
        oracle={"depth": depth, "feeds_tokens": feeds_tokens, "step_time": 0.01}, components=components, **settings
    )
    engine.add(*make_requests(settings["block_size"]))
    engine.run()
    assert engine.max_in_flight == depth
    return engine


def plans(engine):
    return [trace.plan for trace in engine.history]


# -- managers --


@pytest.mark.parametrize(("depth", "feeds_tokens"), DEPTHS)
@pytest.mark.parametrize("pool", ["roomy", "tight"])
@pytest.mark.parametrize("block_size", [8, 32])
@pytest.mark.parametrize("chunk", ["chunk16", "whole"])
def test_radix_and_paged_make_the_same_plans(chunk, block_size, pool, depth, feeds_tokens):
    """Block by block: whom they admit, what is hit and what is evicted."""
    settings = grid_settings(chunk, block_size, True, pool)
    paged, radix = (run(depth, feeds_tokens, **settings, **{"kv_cache_manager.use": manager}) for manager in MANAGERS)
    assert plans(paged) == plans(radix)
    assert paged.stats == radix.stats
    assert radix.num_cached_tokens > 0
    assert (radix.stats.num_preemptions > 0) == (pool == "tight")


# -- victims --


@pytest.mark.parametrize(("depth", "feeds_tokens"), DEPTHS)
@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("manager", MANAGERS)
@pytest.mark.parametrize("victim", VICTIMS)
def test_same_tokens_with_every_victim(victim, manager, caching, depth, feeds_tokens):
    settings = grid_settings("chunk16", 8, caching, "tight")
    engine = run(
        depth, feeds_tokens, **settings, **{"victim.use": victim, "kv_cache_manager.use": manager}
    )  # fmt: skip
    assert engine.info.components["victim"] == victim
    assert engine.stats.num_preemptions > 0


def test_11_every_victim_changes_who_gives_way():
    requests = BrickWorkload(seed=3, block_size=8, num_bricks=4, max_bricks=8, max_tokens=60).requests(40)

    def preempted(victim):
        engine = OracleEngine(
            block_size=8, num_kv_blocks=30, max_num_seqs=8, max_model_len=192, **{"victim.use": victim}
        )
        engine.add(*requests)
        engine.run()
        return [request_id for plan in plans(engine) for request_id in plan.preempted_ids]

    worst, newest, least, largest = (preempted(victim) for victim in VICTIMS)
    assert worst == newest  # under fcfs
    assert worst != least != largest != worst
    assert len(least) > len(worst) > len(largest)  # who holds little frees little


# -- eviction --


@forwarding(EvictionOrder, to="_order")
class Counting(EvictionOrder):
    """An order of eviction that says how much it gave up."""

    def __init__(self, order, given_up):
        self._order = order
        self._given_up = given_up

    def pop(self):
        self._given_up["blocks"] += 1
        return self._order.pop()


def counted(eviction, given_up, **settings):
    (component,) = [c for c in enginecore_components() if (c.kind, c.name) == ("eviction", eviction)]
    chosen = component.settings(**settings)
    return Component(
        kind="eviction",
        name="counted",
        factory=lambda _, context: Counting(component.factory(chosen, context), given_up),  # type: ignore[abstract]
    )


@pytest.mark.parametrize(("depth", "feeds_tokens"), DEPTHS)
@pytest.mark.parametrize("manager", MANAGERS)
@pytest.mark.parametrize("eviction", EVICTIONS)
def test_same_tokens_with_every_order_of_eviction(eviction, manager, depth, feeds_tokens):
    given_up: Counter[str] = Counter()
    engine = run(
        depth,
        feeds_tokens,
        components=[counted(eviction, given_up, **({"seconds": 0.2} if eviction == "ttl" else {}))],
        **grid_settings("chunk16", 8, True, "tight"),
        **{"eviction.use": "counted", "kv_cache_manager.use": manager},
    )
    assert given_up["blocks"] > 10
    assert engine.stats.num_preemptions > 0
    assert engine.num_cached_tokens > 0


ORDER = "ABACADBCDA"


def test_11_every_order_of_eviction_changes_what_is_hit():
    """One after another, in room for three of these prompts, each about a second long."""
    prompts = {name: [n * 20 + position for position in range(17)] for n, name in enumerate("ABCD")}

    def hits(eviction, **settings):
        engine = OracleEngine(
            oracle={"step_time": 0.25}, block_size=8, num_kv_blocks=7, max_model_len=32,
            **{"eviction.use": eviction, **settings},
        )  # fmt: skip
        params = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
        for n, name in enumerate(ORDER):
            engine.add(EngineCoreRequest(request_id=f"{n}", prompt_token_ids=prompts[name], params=params))
            engine.run()
        return "".join("+" if new.num_computed_tokens else "-" for plan in plans(engine) for new in plan.new_requests)

    assert hits("lru") == "--+-+---+-"
    assert hits("lfu") == "--+-+----+"  # A was hit twice
    assert hits("fifo") == "--+-+-+++-"  # which saves nothing for A, the oldest
    assert hits("ttl", **{"eviction.ttl.seconds": 1.5}) == "--+-+-----"
    assert hits("ttl") == hits("lru")
