import math
from typing import Any

import msgspec
import pytest

from enginecore import SamplingParams
from enginecore.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("temperature", -0.1, "[0, 100]"),
        ("temperature", math.nan, "[0, 100]"),
        ("temperature", math.inf, "[0, 100]"),
        ("temperature", "hot", "[0, 100]"),
        ("temperature", True, "[0, 100]"),
        ("temperature", 10**400, "[0, 100]"),
        ("top_p", 10**400, "(0, 1]"),
        ("top_p", math.nan, "(0, 1]"),
        ("n", 1.0, "not supported yet"),
        ("n", True, "not supported yet"),
        ("top_p", 0.0, "(0, 1]"),
        ("top_p", 1.01, "(0, 1]"),
        ("top_k", -2, "-1 or 0 for all"),
        ("top_k", 1.5, "an integer"),
        ("seed", 1 << 63, "64 bits"),
        ("seed", "1", "64 bits"),
        ("max_tokens", -1, "at least 0"),
        ("max_tokens", 1.0, "an integer"),
        ("min_tokens", -1, "[0, max_tokens"),
        ("min_tokens", 17, "max_tokens = 16"),
        ("logprobs", 21, "[0, 20]"),
        ("logprobs", -1, "[0, 20]"),
        ("n", 2, "not supported yet"),
        ("n", 10**6, "not supported yet"),
        ("stop", ["x"] * 65, "at most 64"),
        ("stop", [""], "1 to 1024 characters"),
        ("stop", ["x" * 1025], "1 to 1024 characters"),
        ("stop", [3], "1 to 1024 characters"),
        ("stop", 3, "a list"),
        ("stop_token_ids", [-1], "at least 0"),
        ("stop_token_ids", list(range(257)), "at most 256"),
        ("stop_token_ids", ["a"], "at least 0"),
        ("ignore_eos", 1, "True or False"),
        ("detokenize", None, "True or False"),
    ],
)
def test_bad_values_name_field_value_and_range(field: str, value: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=f"^{field} must be ") as raised:
        SamplingParams(**{field: value})
    assert isinstance(raised.value, InvalidRequestError)
    assert expected in str(raised.value)


def test_stop_strings_need_text() -> None:
    with pytest.raises(InvalidRequestError, match="stop strings need the text"):
        SamplingParams(stop=("END",), detokenize=False)


def test_scripts_may_pass_lists_a_single_string_or_none() -> None:
    params: Any = SamplingParams
    assert params(stop="END").stop == ("END",)
    assert params(stop=["a", "b"]).stop == ("a", "b")
    assert params(stop=None, stop_token_ids=None) == SamplingParams()
    assert params(stop_token_ids=[5, 6]).stop_token_ids == (5, 6)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(
            temperature=0.3, top_p=0.5, top_k=7, seed=-5, max_tokens=None, min_tokens=9, stop=("é", "END"),
            stop_token_ids=(3, 4), ignore_eos=True, include_stop_str_in_output=True, skip_special_tokens=False,
            logprobs=4,
        ),
    ],
)  # fmt: skip
def test_parameters_survive_the_wire(params: SamplingParams) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams) == params


def test_what_the_wire_brings_is_checked_too() -> None:
    forged = list(msgspec.to_builtins(SamplingParams(temperature=0.5)))
    assert forged[2] == 0.5
    forged[2] = -3.0
    with pytest.raises(msgspec.ValidationError, match="temperature must be"):
        msgspec.msgpack.decode(msgspec.msgpack.encode(forged), type=SamplingParams)


def test_greedy_is_temperature_zero() -> None:
    assert SamplingParams(temperature=0).greedy
    assert not SamplingParams(temperature=0.01).greedy
