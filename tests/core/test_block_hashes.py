"""Ready block hashes: in process, where tokens have no content, and nowhere else."""

from typing import Any

import msgspec
import pytest

from enginecore.errors import InvalidRequestError
from enginecore.messages import EngineCoreRequest, FinishReason
from enginecore.plugin import Component, ComponentSettings, KVCacheManagerContext
from enginecore.sampling import SamplingParams
from enginecore_kv_cache.paged import PagedKVCacheManager
from tests.core.engines import make_core, run
from tests.core.faceless import FACELESS, make_faceless

SIZE = 16


def sized(name: str, num_tokens: int, max_tokens: int = 1, **fields: Any) -> EngineCoreRequest:
    params = SamplingParams(temperature=0, max_tokens=max_tokens)
    return EngineCoreRequest(request_id=name, prompt_token_ids=[0] * num_tokens, params=params, **fields)


def simple_manager(settings: ComponentSettings, context: KVCacheManagerContext) -> PagedKVCacheManager:
    return PagedKVCacheManager(context.config, enable_prefix_caching=context.enable_prefix_caching)


SIMPLE = Component(
    kind="kv_cache_manager", name="simple", factory=simple_manager, capabilities=frozenset({"prefix_caching"})
)


@pytest.mark.parametrize("manager", ["paged", "radix"])
def test_they_stand_in_for_token_ids(manager):
    core = make_faceless(kv_cache_manager={"use": manager})
    for name, num_tokens, hashes, hits in (
        ("a", 40, [b"x", b"y"], 0),
        ("b", 40, [b"x", b"z"], 16),
        ("c", 50, [b"x", b"y", b"w"], 32),
        ("d", 40, [], 0),
        ("e", 40, [], 0),
    ):
        core.add_request(sized(name, num_tokens), hashes)
        (last,) = run(core)
        assert (last.finish_reason, last.num_cached_tokens) == (FinishReason.LENGTH, hits), name


@pytest.mark.parametrize(("hashes", "hits"), [([b"x", b"y"], 32), ([b"x"], 16)])
def test_output_is_shared_only_if_a_hash_says_what_it_is(hashes, hits):
    core = make_faceless()
    core.add_request(sized("turn 1", 20, max_tokens=20), hashes)
    run(core)
    core.add_request(sized("turn 2", 60), [b"x", b"y", b"z"])
    (last,) = run(core)
    assert last.num_cached_tokens == hits


def test_a_preempted_request_finds_its_own_blocks_again():
    """4 blocks for two requests that need 3 in the end: one gives way, and hits what it had published."""
    core = make_faceless(num_kv_blocks=4, max_model_len=64)
    core.add_request(sized("a", 31, max_tokens=14), [b"a0", b"a1"])
    core.add_request(sized("b", 31, max_tokens=14), [b"b0", b"b1"])
    outputs = run(core)
    assert [o.finish_reason for o in outputs if o.finish_reason is not None] == [FinishReason.LENGTH] * 2
    hits = core.executor.hits  # type: ignore[attr-defined]
    assert hits == {"a": [0], "b": [0, 16]}  # of its two blocks, the other one took the last


@pytest.mark.parametrize(
    ("hashes", "fields", "message"),
    [
        ([b"x"], {"cache_salt": "s"}, "cover salt and adapter too: leave cache_salt = 's'"),
        ([b"x"], {"adapter": "l"}, "and adapter = 'l' None"),
        (["x"], {}, "must be bytes"),
        ([[1]], {}, "must be bytes"),
        ([b"x", b"x"], {}, "each different"),
        ([b"%d" % n for n in range(4)], {}, r"4 block_hashes, but prompt and output fill at most 2 blocks of 16"),
    ],
)
def test_what_cannot_be_meant_is_refused(hashes, fields, message):
    core = make_faceless()
    with pytest.raises(InvalidRequestError, match=message):
        core.add_request(sized("a", 40, **fields), hashes)
    assert not core.has_requests()


def test_a_prompt_is_as_long_as_ever():
    core = make_faceless(max_model_len=64)
    with pytest.raises(InvalidRequestError, match=r"the prompt has 64 tokens and may have 63 \(max_model_len is 64"):
        core.add_request(sized("a", 64), [])
    with pytest.raises(InvalidRequestError, match="the prompt is empty"):
        core.add_request(sized("a", 0), [])


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (make_core, "'oracle' and 'paged' are not both so"),
        (
            lambda: make_faceless(components=[FACELESS, SIMPLE], kv_cache_manager={"use": "simple"}),
            "'faceless' and 'simple' are not both so",
        ),
    ],
)
def test_where_tokens_have_content_or_the_manager_looks_at_it_they_are_refused(make, names):
    core = make()
    with pytest.raises(InvalidRequestError, match=f"block_hashes need an executor .*{names}"):
        core.add_request(sized("a", 40), [b"x"])


def test_without_prefix_caching_any_manager_will_do():
    core = make_faceless(components=[FACELESS, SIMPLE], kv_cache_manager={"use": "simple"}, enable_prefix_caching=False)
    for name in "ab":
        core.add_request(sized(name, 40), [b"x"])
        assert [output.num_cached_tokens for output in run(core)] == [0]


def test_no_message_has_room_for_them():
    """A front end that forges a field more is heard as if it had not, and its tokens count as ever."""
    assert not {"block_hashes", "has_ready_hashes"} & set(EngineCoreRequest.__struct_fields__)
    core = make_faceless()
    core.add_request(sized("victim", 40), [b"secret 0", b"secret 1"])
    run(core)
    honest = msgspec.msgpack.decode(msgspec.msgpack.encode(sized("forged", 40)))
    full = [*honest, *msgspec.structs.astuple(sized("forged", 40))[len(honest) :]]
    forged = msgspec.msgpack.encode([*full, [b"secret 0", b"secret 1"]])
    core.add_request(msgspec.msgpack.decode(forged, type=EngineCoreRequest))
    (last,) = run(core)
    assert (last.request_id, last.num_cached_tokens) == ("forged", 0)
    with pytest.raises(InvalidRequestError, match="no utility"):
        core.call_utility("add_request", sized("called", 40), [b"secret 0"])
