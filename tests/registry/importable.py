"""A component that other processes can import."""

from enginecore.plugin import Component, ComponentSettings


class NamedSettings(ComponentSettings):
    weight: float = 1.0


def make(settings, context):
    return settings.weight


COMPONENT = Component(kind="scheduler", name="named", factory=make, settings=NamedSettings)
