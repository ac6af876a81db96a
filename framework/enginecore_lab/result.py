"""`result.json`: all that an experiment found, and all that it takes to find it again."""

import json
import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from enginecore.errors import ConfigurationError
from enginecore.registry import Registry
from enginecore_lab.comparison import Comparison
from enginecore_lab.run import Run

PACKAGES = ("enginecore", "msgspec", "numpy", "pydantic", "scipy", "statsmodels")
"""What figures may depend on, besides plugins."""

REPEAT = "enginecore ab result.json"
"""Repeats any experiment: a result holds all of it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of `compare`.

    Attributes:
        comparison: The verdict and all its figures.
        runs: By arm, its whole run of the first replicate: for pictures.
    """

    comparison: Comparison
    runs: Mapping[str, Run]


def versions(registry: Registry) -> dict[str, str]:
    """Versions of Python, of packages, and of the distributions that plugins come from."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    found |= {record.distribution: record.version for record in registry.plugins if record.distribution}
    return dict(sorted(found.items()))


def now() -> str:
    """The time, for `created`."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def to_json(found: Any) -> str:
    """Two equal findings give equal text: keys are in order. What JSON has no number for is text: "inf", "nan"."""
    return json.dumps(_finite(msgspec.to_builtins(found)), indent=1, sort_keys=True, allow_nan=False) + "\n"


def read_result(path: Path) -> Comparison:
    """Read a result that `to_json` wrote.

    Raises:
        ConfigurationError: it cannot be read, or is something else.
    """
    try:
        return msgspec.convert(json.loads(path.read_text(encoding="utf-8")), Comparison, strict=False)
    except (OSError, ValueError) as error:  # msgspec.ValidationError is a ValueError
        raise ConfigurationError(f"{path} is no result of `enginecore ab`: {error}") from error


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
