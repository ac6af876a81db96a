"""Types of single settings that pydantic does not have."""

import math
import re
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, WithJsonSchema

_UNITS: dict[str, int] = {"": 1, "b": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for suffix, base in (("ib", 1024), ("b", 1000))
}
_WITH_UNIT = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]*)", re.IGNORECASE)
_MOST = 1 << 63
_EXPECTED = 'must be a size with a unit such as "2GiB", a number of bytes, or a fraction in (0, 1] such as 0.5'


def parse_memory(value: object) -> int | float:
    """A size or share of memory: bytes as int, a share as float in (0, 1].

    A string with a unit is a size ("512MiB", "3 GB"); without one it means what the number means.

    Raises:
        ValueError: neither, or it might be both.
    """
    number = _parse_text(value) if isinstance(value, str) else value
    if isinstance(number, float):
        if not 0 < number <= 1:  # also refuses nan
            raise ValueError(f"{_EXPECTED}; a number with a point is a fraction")
        return number
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(_EXPECTED)
    if number >= _MOST:
        raise ValueError(f"is more than any machine can address; {_EXPECTED}")
    if number == 1:
        raise ValueError("is ambiguous: write 1.0 for all of the memory, or a number of bytes with a unit")
    return number


def _parse_text(text: str) -> int | float:
    match = _WITH_UNIT.fullmatch(text.strip())
    if match is None:
        raise ValueError(_EXPECTED)
    number, unit = match[1], match[2].lower()
    if unit not in _UNITS:
        hint = f"; write {unit[0].upper()}iB (powers of 1024) or {unit[0].upper()}B (powers of 1000)"
        raise ValueError(f"has the unknown unit {match[2]!r}{hint if unit[0] in 'kmgt' else ''}; {_EXPECTED}")
    if not unit:
        return float(number) if "." in number else int(number)
    size = math.floor(Fraction(number) * _UNITS[unit])  # exact: a float has no room for a great many digits
    if size < 2:
        raise ValueError(f"is {size} bytes; {_EXPECTED}")
    return size


def parse_max_model_len(value: Any) -> Any:
    """A length, "auto" or None.

    Raises:
        ValueError: anything else.
    """
    if value is None or value == "auto":
        return value
    try:
        length = int(value) if isinstance(value, str) else value
    except ValueError:
        length = None
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise ValueError('must be a number of tokens of at least 1, or "auto" for the most that fits in the KV cache')
    return length


KVCacheMemory = Annotated[
    int | float,
    BeforeValidator(parse_memory),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "description": "a size with a unit, such as 2GiB"},
                {"type": "integer", "minimum": 2, "description": "bytes"},
                {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "description": "a fraction"},
            ]
        }
    ),
]

MaxModelLen = Annotated[int | Literal["auto"] | None, BeforeValidator(parse_max_model_len)]
