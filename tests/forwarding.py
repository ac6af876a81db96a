"""Test doubles that stand before another object and hand on what they do not override."""

from abc import update_abstractmethods
from operator import attrgetter
from typing import Any

from enginecore.registry.overrides import interface_members


def forwarding(interface: type, to: str) -> Any:
    """Class decorator: members of the interface that the class does not define are those of its attribute `to`."""

    def method(name: str) -> Any:
        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(getattr(self, to), name)(*args, **kwargs)

        return forward

    def complete(cls: Any) -> Any:
        for name, member in interface_members(interface).items():
            if getattr(cls, name) is getattr(interface, name):
                is_property = isinstance(member, property)
                setattr(cls, name, property(attrgetter(f"{to}.{name}")) if is_property else method(name))
        return update_abstractmethods(cls)

    return complete
