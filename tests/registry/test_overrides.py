"""What a component may put in the place of a member of its interface."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import cached_property

import pytest

from enginecore.errors import PluginError
from enginecore.interfaces import VictimChoice
from enginecore.plugin import Component, VictimContext
from enginecore.registry.component import build_component
from enginecore.registry.overrides import interface_members, missing_members, odd_member


class Interface(ABC):
    """One of each."""

    __slots__ = ()

    @property
    @abstractmethod
    def size(self) -> int:
        """Required."""

    @property
    def lifetime(self) -> float | None:
        return None

    @abstractmethod
    def choose(self, items: Sequence[int], /, *, strict: bool = True) -> int:
        """Required."""

    def items(self) -> Iterator[int]:
        return iter(())

    async def close(self) -> None:
        return None

    def stream(self) -> AsyncIterator[int]:
        raise NotImplementedError

    def __len__(self) -> int:
        return 0

    def _own(self) -> int:
        return 0


def derived(**members):
    """A subclass with these members, and good ones for the others that are required."""
    good = {"__slots__": (), "size": property(lambda self: 1), "choose": lambda self, numbers, /, *, strict=True: 0}
    return type("Derived", (Interface,), {**good, **members})


class Choose:
    """Methods to take the place of `choose`."""

    @staticmethod
    def without_self(items, /, *, strict=True):
        return 0

    @classmethod
    def of_class(cls, items, /, *, strict=True):
        return 0


async def coroutine(self, *args, **kwargs):
    return 0


def generator(self, *args, **kwargs):
    yield 0


async def async_generator(self, *args, **kwargs):
    yield 0


def test_members_are_the_public_ones_and_special_methods():
    assert list(interface_members(Interface)) == ["size", "lifetime", "choose", "items", "close", "stream", "__len__"]


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"size": 3},
        {"size": cached_property(lambda self: 1)},
        {"__slots__": ("size",)},
        {"choose": lambda self, *args, **kwargs: 0},
        {"choose": lambda self, numbers, more=1, /, *, strict=True, extra=2: 0},
        {"choose": vars(Choose)["without_self"]},
        {"choose": vars(Choose)["of_class"]},
        {"items": generator},
        {"close": coroutine},
        {"close": lambda self: None},
        {"stream": async_generator},
        {"__len__": lambda self: 2},
    ],
)
def test_what_can_be_used_as_the_interface_says_is_fine(members):
    good = derived(**{name: member for name, member in members.items() if name != "__slots__"})
    if "__slots__" in members:
        good = type("Slotted", (Interface,), {"__slots__": ("size",), "choose": good.choose})
    assert missing_members(good, Interface) is None
    assert odd_member(good, Interface) is None


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"size": lambda self: 1}, "size is a method, and must be a property: size -> int"),
        ({"lifetime": lambda self: None}, "lifetime is a method, and must be a property: lifetime -> float | None"),
        ({"lifetime": property(coroutine)}, "lifetime is a coroutine function (async def), and must be a plain"),
        ({"choose": property(lambda self: 0)}, "choose is no method, and must be one: choose(self, items: "),
        ({"choose": None}, "choose is no method, and must be one"),
        ({"choose": coroutine}, "choose is a coroutine function (async def), and must be a plain function: choose("),
        ({"choose": generator}, "choose is a generator function (yield), and must be a plain function"),
        ({"items": coroutine}, "items is a coroutine function"),
        ({"items": async_generator}, "items is an asynchronous generator function"),
        ({"choose": lambda self, numbers: 0}, "choose must take (self, items: "),
        ({"choose": lambda self: 0}, "too many positional arguments"),
        ({"choose": lambda self, numbers, more, *, strict=True: 0}, "missing a required argument: 'more'"),
        ({"choose": vars(Choose)["without_self"], "items": staticmethod(lambda self: 0)}, "items must take (self)"),
        ({"__len__": lambda self, more: 2}, "__len__ must take (self) -> int: missing a required argument: 'more'"),
    ],
)
def test_anything_else_is_named_with_what_would_be_right(members, problem):
    found = odd_member(derived(**members), Interface)
    assert found is not None
    assert problem in found


def test_all_that_is_missing_is_named_with_its_signature():
    text = missing_members(type("Derived", (Interface,), {}), Interface)
    assert text is not None
    assert text.startswith("it lacks size -> int, choose(self, items: ")


# -- components --


class Worst(VictimChoice):
    def choose(self, candidates, needy, scheduler):
        return candidates[-1]


class Alike:
    choose = Worst.choose


class Waits(VictimChoice):
    async def choose(self, candidates, needy, scheduler):  # type: ignore[override]
        return candidates[-1]


class WaitsAtOnce(Waits):
    def __init__(self, settings, context):
        raise AssertionError("it is looked at before it is built")


def build(factory):
    component = Component(kind="victim", name="mine", factory=factory)
    return build_component(component, component.settings(), VictimContext(max_num_seqs=4, seed=0), VictimChoice)


def test_a_component_is_an_instance_of_its_interface():
    assert isinstance(build(lambda settings, context: Worst()), Worst)
    with pytest.raises(PluginError) as caught:
        build(lambda settings, context: Alike())
    assert str(caught.value) == (
        "victim 'mine' made a Alike, which is no VictimChoice: subclass enginecore.interfaces.VictimChoice"
    )


@pytest.mark.parametrize("factory", [lambda settings, context: Waits(), WaitsAtOnce])
def test_its_members_are_checked_before_it_is_used_and_those_of_a_class_before_it_is_built(factory):
    with pytest.raises(PluginError, match=r"which is no VictimChoice: choose is a coroutine function \(async def\)"):
        build(factory)


def test_other_errors_of_a_factory_are_not_taken_for_missing_members():
    with pytest.raises(PluginError, match=r"victim 'mine' cannot be built: TypeError: object of .* has no len\(\)$"):
        build(lambda settings, context: len(settings))
