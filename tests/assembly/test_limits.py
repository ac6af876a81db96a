"""What is in force is found out at start-up, and an impossible combination is refused there."""

from typing import Any

import pytest

from enginecore.errors import ConfigurationError, InvalidRequestError, PluginError
from enginecore.plugin import Component
from tests.core.engines import make_core, request, run


def test_auto_takes_what_fits_and_one_truth_is_advertised_and_enforced() -> None:
    """Field case 6."""
    core = make_core(oracle={"max_model_len": 1024}, num_kv_blocks=8, block_size=16)
    assert core.info.max_model_len == 128
    with pytest.raises(InvalidRequestError, match=r"200 tokens and may have 127 \(max_model_len is 128"):
        core.add_request(request("r", prompt=200))
    core.add_request(request("fits", prompt=127))
    assert [output.request_id for output in run(core)] == ["fits"]


def test_auto_is_at_most_what_the_model_was_made_for() -> None:
    assert make_core(oracle={"max_model_len": 100}, num_kv_blocks=100).info.max_model_len == 100


def test_one_request_of_max_model_len_must_fit_and_the_error_says_what_would() -> None:
    """Field case 1."""
    with pytest.raises(ConfigurationError, match="needs 64 KV blocks of 16, and there are 63") as raised:
        make_core(oracle={"max_model_len": 1024}, max_model_len=None, num_kv_blocks=63)
    assert "lower max_model_len to 1008" in str(raised.value)
    assert make_core(oracle={"max_model_len": 1024}, max_model_len=None, num_kv_blocks=64).info.max_model_len == 1024


def test_more_than_the_model_was_made_for_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"max_model_len = 129 is more than .* at most 128"):
        make_core(oracle={"max_model_len": 128}, max_model_len=129)


def test_memory_in_bytes_becomes_blocks() -> None:
    core = make_core(oracle={"kv_memory": 1 << 20}, num_kv_blocks=None, kv_cache_memory="128KiB", block_size=16)
    assert core.info.num_blocks == (128 << 10) // (16 * 8)


def test_without_chunked_prefill_a_step_must_hold_the_longest_prompt() -> None:
    limits: dict[str, Any] = {"oracle": {"max_model_len": 64}, "enable_chunked_prefill": False}
    with pytest.raises(ConfigurationError, match="max_num_batched_tokens = 63 is below max_model_len = 64"):
        make_core(**limits, max_num_batched_tokens=63)
    core = make_core(**limits, max_num_batched_tokens=64)
    assert not core.info.enable_chunked_prefill


def test_layers_that_are_not_causal_switch_both_off_before_the_last_check() -> None:
    """Field case 8."""
    core = make_core(oracle={"max_model_len": 64, "non_causal": True}, max_num_batched_tokens=64)
    assert not core.info.enable_chunked_prefill
    assert not core.info.enable_prefix_caching
    with pytest.raises(ConfigurationError, match="layers that are not causal"):
        make_core(oracle={"max_model_len": 64, "non_causal": True}, max_num_batched_tokens=63)


def test_a_piece_larger_than_the_budget_is_refused() -> None:
    """Field case 9."""
    settings: dict[str, Any] = {"scheduler": {"fcfs": {"prefill_chunk_size": 64}}}
    with pytest.raises(ConfigurationError, match="prefill_chunk_size = 64 is above max_num_batched_tokens = 32"):
        make_core(max_num_batched_tokens=32, **settings)
    make_core(max_num_batched_tokens=64, **settings)


# -- capabilities ----------------------------------------------------------------------------------------------------


def _never(settings: object, context: object) -> object:
    raise AssertionError("built although it was to be refused")


def _broken(settings: object, context: object) -> object:
    raise KeyError("weights")


PLAIN_SCHEDULER = Component(kind="scheduler", name="plain", factory=_never)
CHUNKING_SCHEDULER = Component(
    kind="scheduler", name="chunking", factory=_never, capabilities=frozenset({"chunked_prefill"})
)
PLAIN_MANAGER = Component(kind="kv_cache_manager", name="plain", factory=_never)
BROKEN_SCHEDULER = Component(
    kind="scheduler", name="broken", factory=_broken, capabilities=frozenset({"chunked_prefill", "prefix_caching"})
)


@pytest.mark.parametrize(
    ("component", "settings", "message"),
    [
        (PLAIN_SCHEDULER, {"oracle": {"depth": 2}}, "'oracle' keeps 2 batches in flight, and scheduler 'plain'"),
        (PLAIN_SCHEDULER, {}, "does not declare 'chunked_prefill': set enable_chunked_prefill = false"),
        (CHUNKING_SCHEDULER, {}, "scheduler 'chunking' does not declare 'prefix_caching'"),
        (PLAIN_MANAGER, {}, "kv_cache_manager 'plain' does not declare 'prefix_caching': set enable_prefix_caching"),
    ],
)
def test_an_impossible_pair_is_refused_in_a_sentence(
    component: Component, settings: dict[str, Any], message: str
) -> None:
    """Field cases 131 and 134: what both sides can do is declared, and compared before anything is built."""
    with pytest.raises(ConfigurationError, match=message):
        make_core(components=[component], **{str(component.kind): {"use": component.name}, **settings})


def test_a_factory_that_breaks_is_named() -> None:
    with pytest.raises(PluginError, match="scheduler 'broken' cannot be built: KeyError: 'weights'") as raised:
        make_core(components=[BROKEN_SCHEDULER], scheduler={"use": "broken"})
    assert isinstance(raised.value.__cause__, KeyError)
