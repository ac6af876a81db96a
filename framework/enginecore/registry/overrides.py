"""Check of a class against its interface: members that are missing or overridden wrongly.

Types are a type checker's concern. What is looked for here would fail in the middle of a step.
"""

import inspect
import re
from collections import abc
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MemberDescriptorType
from typing import Any, get_origin

_FLAVOURS: Mapping[str, Callable[[Any], bool]] = {
    "a coroutine function (async def)": inspect.iscoroutinefunction,
    "a generator function (yield)": inspect.isgeneratorfunction,
    "an asynchronous generator function": inspect.isasyncgenfunction,
}
_ITERATORS: Mapping[str, tuple[Any, ...]] = {
    "a generator function (yield)": (abc.Iterator, abc.Iterable, abc.Generator),
    "an asynchronous generator function": (abc.AsyncIterator, abc.AsyncIterable, abc.AsyncGenerator),
}


def interface_members(interface: type) -> dict[str, Any]:
    """The properties and methods of an interface by name, special methods such as `__len__`
    included.
    """
    members: dict[str, Any] = {}
    for base in reversed(interface.__mro__):
        for name, member in vars(base).items():
            if isinstance(member, property) or (inspect.isfunction(member) and member.__module__ == base.__module__):
                members[name] = member
    return {name: member for name, member in members.items() if name.endswith("__") or not name.startswith("_")}


def describe_member(name: str, member: Any) -> str:
    """A member as the interface declares it, such as "free(self, request: Request) -> None"."""
    if isinstance(member, property):
        return f"{name}{str(inspect.signature(member.fget)).removeprefix('(self)')}"  # type: ignore[arg-type]
    return f"{name}{inspect.signature(member)}"


def missing_members(cls: type, interface: type) -> str | None:
    """Which required members a subclass leaves out; None if it has them all."""
    members = interface_members(interface)
    missing = [name for name in members if name in getattr(cls, "__abstractmethods__", ())]
    return f"it lacks {', '.join(describe_member(name, members[name]) for name in missing)}" if missing else None


def missing_members_in(error: TypeError, interface: type) -> str:
    """Members that an abstract class lacks, by the `error` of its construction; empty if it failed
    for another reason.
    """
    if "abstract class" not in str(error):
        return ""
    named = [
        describe_member(name, member)
        for name, member in interface_members(interface).items()
        if re.search(rf"\b{name}\b", str(error))
    ]
    return f"; {interface.__name__} requires {', '.join(named)}"


def odd_member(cls: type, interface: type) -> str | None:
    """Which member a class overrides by the wrong thing, and what would be right; None if all are
    fine.

    Wrong is a method in place of a property and the reverse, a coroutine or generator function in
    place of a plain one, and a method that cannot be called with the arguments of the interface.
    """
    for name, wanted in interface_members(interface).items():
        found = inspect.getattr_static(cls, name, wanted)
        if found is not wanted and (problem := _problem(cls, name, wanted, found)):
            return problem
    return None


def _problem(cls: type, name: str, wanted: Any, found: Any) -> str | None:
    right = describe_member(name, wanted)
    if isinstance(wanted, property):
        if isinstance(found, staticmethod | classmethod) or inspect.isfunction(found):
            return f"{name} is a method, and must be a property: {right}"
        odd = _odd_flavour(found.fget, wanted.fget) if isinstance(found, property) else None
        return f"{name} is {odd}, and must be a plain property: {right}" if odd else None
    if isinstance(found, property | cached_property | MemberDescriptorType) or not callable(getattr(cls, name)):
        return f"{name} is no method, and must be one: {right}"
    function = inspect.unwrap(getattr(cls, name))
    if odd := _odd_flavour(function, wanted):
        return f"{name} is {odd}, and must be a plain function: {right}"
    return _odd_arguments(
        name, getattr(cls, name), wanted, takes_self=not isinstance(found, staticmethod | classmethod)
    )


def _odd_flavour(found: Any, wanted: Any) -> str | None:
    """The kind of function that `found` is, if calling it does not give what `wanted` gives."""
    for flavour, holds in _FLAVOURS.items():
        if holds(found) and not holds(wanted) and not _returns(wanted, _ITERATORS.get(flavour, ())):
            return flavour
    return None


def _returns(function: Any, classes: tuple[Any, ...]) -> bool:
    given = inspect.signature(function).return_annotation
    return (get_origin(given) or given) in classes


def _odd_arguments(name: str, found: Any, wanted: Any, *, takes_self: bool) -> str | None:
    """Why a method cannot be called as its interface says; None if it can."""
    signature = inspect.signature(wanted)
    parameters = list(signature.parameters.values())[0 if takes_self else 1 :]
    named = {one.name: None for one in parameters if one.kind in (one.KEYWORD_ONLY, one.VAR_KEYWORD)}
    try:
        inspect.signature(found).bind(*parameters[: len(parameters) - len(named)], **named)
    except TypeError as error:
        return f"{name} must take {signature}: {error}"
    except ValueError:  # a built-in callable without a signature
        return None
    return None
