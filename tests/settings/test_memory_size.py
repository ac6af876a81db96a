"""`kv_cache_memory` and `max_model_len`: what each form means, and what is refused."""

import pytest
from pydantic import ValidationError

from enginecore.settings import EngineSettings


@pytest.mark.parametrize(
    ("given", "meaning"),
    [
        ("2GiB", 2147483648),
        ("512MiB", 536870912),
        ("3GB", 3000000000),
        ("3 gb", 3000000000),
        ("1.5KiB", 1536),
        ("8388607.9999999999TiB", 9223372036854775698),
        ("2.GiB", 2147483648),
        (".5GiB", 536870912),
        ("100B", 100),
        ("1TiB", 1099511627776),
        (1048576, 1048576),
        ("1048576", 1048576),
        (0.5, 0.5),
        ("0.5", 0.5),
        (".25", 0.25),
        (1.0, 1.0),
        ("1.0", 1.0),
    ],
)
def test_sizes_are_bytes_and_shares_are_fractions(given, meaning):
    memory = EngineSettings(kv_cache_memory=given).kv_cache_memory
    assert (memory, type(memory)) == (meaning, type(meaning))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (1, "is ambiguous: write 1.0"),
        ("1", "is ambiguous: write 1.0"),
        (0, "must be a size with a unit"),
        (0.0, "a number with a point is a fraction"),
        (-5, "must be a size with a unit"),
        (1.5, "a number with a point is a fraction"),
        ("2.5", "a number with a point is a fraction"),
        (float("nan"), "a number with a point is a fraction"),
        (float("inf"), "a number with a point is a fraction"),
        (True, "must be a size with a unit"),
        (None, "must be a size with a unit"),
        ("", "must be a size with a unit"),
        ("-1GiB", "must be a size with a unit"),
        ("2G", "unknown unit 'G'; write GiB (powers of 1024) or GB (powers of 1000)"),
        ("2 parsecs", "unknown unit 'parsecs'"),
        ("0GiB", "is 0 bytes"),
        ([1], "must be a size with a unit"),
        ("9" * 320 + "TiB", "is more than any machine can address"),
        ("9" * 320, "is more than any machine can address"),
        ("8388608TiB", "is more than any machine can address"),
        (10**400, "is more than any machine can address"),
        ("9" * 5000 + "B", "value has 5000 digits"),
        ("9" * 5000, "value has 5000 digits"),
    ],
)
def test_wrong_and_ambiguous_sizes_are_refused(given, sentence):
    with pytest.raises(ValidationError) as error:
        EngineSettings(kv_cache_memory=given)
    assert sentence in str(error.value)


@pytest.mark.parametrize(("given", "length"), [(None, None), ("auto", "auto"), (128, 128), ("128", 128)])
def test_lengths(given, length):
    assert EngineSettings(max_model_len=given).max_model_len == length


@pytest.mark.parametrize("given", [0, -1, True, 1.5, "many", "1.5", [1]])
def test_wrong_lengths_are_refused(given):
    with pytest.raises(ValidationError, match='must be a number of tokens of at least 1, or "auto"'):
        EngineSettings(max_model_len=given)
