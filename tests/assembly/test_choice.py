"""Victim choices and orders of eviction: which one runs, and never one that would do nothing."""

from typing import Any, cast

import pytest

from enginecore.errors import ConfigurationError, PluginError
from enginecore.interfaces import EvictionOrder, VictimChoice
from enginecore.kv_cache import Lru
from enginecore.plugin import Component, ComponentSettings, EvictionContext, KVCacheManagerContext, VictimContext
from enginecore.scheduling import SchedulingPolicy, policy_component
from enginecore_kv_cache.paged import PagedKVCacheManager
from tests.core.engines import make_core, request, run


class Own(SchedulingPolicy):
    """Decides alone who gives way."""

    def rank(self, request, scheduler):
        return request.arrival

    def victim(self, candidates, needy, scheduler):
        return candidates[0]


class Open(SchedulingPolicy):
    def rank(self, request, scheduler):
        return request.arrival


def make_simple_manager(settings: ComponentSettings, context: KVCacheManagerContext) -> PagedKVCacheManager:
    assert context.eviction is None
    return PagedKVCacheManager(context.config, enable_prefix_caching=context.enable_prefix_caching)


SIMPLE = Component(
    kind="kv_cache_manager", name="simple", factory=make_simple_manager, capabilities=frozenset({"prefix_caching"})
)
COMPONENTS = [policy_component("own", Own), policy_component("open", Open), SIMPLE]


def parts_of(extra: Component | None = None, **settings: Any) -> tuple[str | None, str | None]:
    core = make_core(components=[*COMPONENTS, extra] if extra else COMPONENTS, **settings)
    return core.info.components.get("victim"), core.info.components.get("eviction")


def test_an_engine_says_which_parts_run() -> None:
    assert parts_of() == ("worst_rank", "lru")
    assert parts_of(victim={"use": "largest"}, eviction={"use": "lfu"}) == ("largest", "lfu")
    assert parts_of(scheduler={"use": "open"}, victim={"use": "newest"}) == ("newest", "lru")
    assert parts_of(kv_cache_manager={"use": "radix"}, eviction={"use": "fifo"}) == ("worst_rank", "fifo")


def test_what_nobody_uses_does_not_run() -> None:
    assert parts_of(scheduler={"use": "own"}) == (None, "lru")
    assert parts_of(kv_cache_manager={"use": "simple"}) == ("worst_rank", None)
    assert parts_of(enable_prefix_caching=False) == ("worst_rank", None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"scheduler": {"use": "own"}, "victim": {"use": "largest"}},
            "victim.use = 'largest' has no effect, since scheduler 'own' decides that itself: leave it out (the "
            "default is 'worst_rank'), or choose another scheduler",
        ),
        (
            {"kv_cache_manager": {"use": "simple"}, "eviction": {"use": "lfu"}},
            "eviction.use = 'lfu' has no effect, since kv_cache_manager 'simple' decides that itself: leave it out (the"
            " default is 'lru'), or choose another kv_cache_manager",
        ),
        (
            {"enable_prefix_caching": False, "eviction": {"use": "ttl"}},
            "eviction.use = 'ttl' has no effect, since prefix caching is off: leave it out (the default is 'lru'), or "
            "set enable_prefix_caching = true (a model that is not causal cannot have it)",
        ),
    ],
)
def test_11_a_part_that_would_do_nothing_is_refused_in_a_sentence(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make_core(components=COMPONENTS, **settings)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"victim": {"use": "newset"}}, "offers victim 'newset'; did you mean newest?"),
        ({"victim": {"use": "worst-rank"}}, "did you mean worst_rank?"),
        ({"eviction": {"use": "lruu"}}, "offers eviction 'lruu'; did you mean lru?"),
        ({"eviction": {"use": "largest"}}, "no active plugin offers eviction 'largest'"),
        ({"eviction": {"use": "ttl", "ttl": {"second": 1}}}, "did you mean eviction.ttl.seconds?"),
        ({"eviction": {"use": "ttl", "ttl": {"seconds": 0}}}, "eviction.ttl.seconds = 0"),
        ({"evictions": {"use": "ttl"}}, "did you mean eviction"),
        ({"kv_cache_manager": {"use": "radx"}}, "did you mean radix?"),
    ],
)
def test_unknown_names_give_near_misses(settings: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigurationError, PluginError)) as caught:
        make_core(**settings)
    assert message in str(caught.value)


# -- what factories get, and what they must give --


def test_factories_get_the_limits_in_force() -> None:
    contexts: list[object] = []

    class Last(VictimChoice):
        def choose(self, candidates, needy, scheduler):
            return candidates[-1]

    def make_victim(settings: ComponentSettings, context: VictimContext) -> Last:
        contexts.append(context)
        return Last()

    def make_eviction(settings: ComponentSettings, context: EvictionContext) -> Lru:
        contexts.append(context)
        return Lru()

    core = make_core(
        components=[
            Component(kind="victim", name="mine", factory=make_victim),
            Component(kind="eviction", name="mine", factory=make_eviction),
        ],
        victim={"use": "mine"},
        eviction={"use": "mine"},
        num_kv_blocks=7,
        block_size=8,
        max_num_seqs=3,
        seed=5,
    )
    assert contexts == [EvictionContext(num_blocks=7, block_size=8, seed=5), VictimContext(max_num_seqs=3, seed=5)]
    core.add_request(request("a"))
    assert len(run(core)) == 4


@pytest.mark.parametrize(
    ("kind", "lacking"),
    [
        ("victim", r"VictimChoice requires choose\(self, candidates: .*, scheduler: .*, /\) -> .*RequestView | None"),
        ("eviction", r"EvictionOrder requires pop\(self\) -> .*CachedContent"),
    ],
)
def test_a_part_that_lacks_members_of_its_interface_is_refused_by_name(kind: Any, lacking: str) -> None:
    class HalfChoice(VictimChoice): ...

    class HalfOrder(EvictionOrder):
        add = remove = __len__ = __iter__ = lambda *_: None  # type: ignore[assignment]

    half: Any = HalfChoice if kind == "victim" else HalfOrder
    component = Component(kind=kind, name="half", factory=lambda settings, context: half())
    with pytest.raises(PluginError, match=f"{kind} 'half' cannot be built: .* class {half.__name__} .*; {lacking}"):
        parts_of(extra=component, **{kind: {"use": "half"}})


def test_a_special_method_that_is_missing_is_noticed_too() -> None:
    class Half(EvictionOrder):
        add = remove = pop = lambda *_: None  # type: ignore[assignment]

        def __init__(self, settings: ComponentSettings, context: EvictionContext) -> None:
            """Takes what a factory takes: what is missing is seen before it is called."""

    component = Component(kind="eviction", name="half", factory=cast(Any, Half))
    missing = r"it lacks __len__\(self\) -> int, __iter__\(self\) -> "
    with pytest.raises(PluginError, match=f"eviction 'half' made a Half, which is no EvictionOrder: {missing}"):
        make_core(components=[component], eviction={"use": "half"})
