"""A component with settings of every shape, and the error of a reading that must fail."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from enginecore.errors import ConfigurationError
from enginecore.plugin import Component, ComponentSettings
from enginecore.settings import load_settings


class Part(ComponentSettings):
    size: int = 1


class ShapesSettings(ComponentSettings):
    weight: float = 1.0
    count: Annotated[int, Field(ge=1, strict=True)] | None = None
    loud: bool = False
    names: tuple[str, ...] = ()
    shares: dict[str, float] = Field(default_factory=dict)
    part: Part = Part()
    window: int | Literal["whole"] = "whole"


class NeedySettings(ComponentSettings):
    path: str
    depth: int = 1


def make(settings, context):
    return settings


def component(**words: Any) -> Component:
    """A Component with words that its types do not allow."""
    return Component(**words)


SHAPES = Component(kind="scheduler", name="shapes", factory=make, settings=ShapesSettings, summary="All shapes.")
NEEDY = Component(kind="scheduler", name="needy", factory=make, settings=NeedySettings)
DASHED = Component(kind="executor", name="My-Own", factory=make, settings=ShapesSettings)
COMPONENTS = (SHAPES, NEEDY, DASHED)


def load(arguments=None, *, environ=None, **others):
    return load_settings(arguments, components=COMPONENTS, environ=environ or {}, **others)


def message_of(arguments=None, **others):
    """What a reading that must fail says."""
    with pytest.raises(ConfigurationError) as error:
        load(arguments, **others)
    return str(error.value)
