"""Colours of the report's pictures: real ones in Python, variables of the style sheet on the page.

The page is light or dark as its reader likes, and a picture is made once. So a picture has the colours of the light
scheme, no two of which are the same, and on the page each stands as its variable, `var(--name)`, for which the page's
script puts in what it means there.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

ASSETS = Path(__file__).parent / "assets"

STYLE = (ASSETS / "report.css").read_text(encoding="utf-8")

LIGHT: Mapping[str, str] = MappingProxyType(
    dict(re.findall(r"--([a-z0-9-]+): ([^;]+);", STYLE.partition("@media (prefers-color-scheme: dark)")[0]))
)
"""Colours of the light scheme, by name."""

NUM_ARM_COLOURS = 6
NUM_TENANT_COLOURS = 8

_VARIABLES: Mapping[str, str] = MappingProxyType({colour: f"var(--{name})" for name, colour in LIGHT.items()})


def arm_colour(index: int) -> str:
    """The colour of an arm, by its place in the experiment."""
    return LIGHT[f"arm-{index % NUM_ARM_COLOURS}"]


def tenant_colour(index: int) -> str:
    """The colour of a tenant, by its place among those shown."""
    return LIGHT[f"tenant-{index % NUM_TENANT_COLOURS}"]


def with_variables(value: Any) -> Any:
    """Plain values with every colour as its variable."""
    if isinstance(value, Mapping):
        return {key: with_variables(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [with_variables(each) for each in value]
    return _VARIABLES.get(value, value) if isinstance(value, str) else value
