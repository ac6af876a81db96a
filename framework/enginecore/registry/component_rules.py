"""Rules that a component must satisfy, whatever plugin offers it."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel

from enginecore.errors import PluginError
from enginecore.plugin import Component, KindSpec
from enginecore.registry.spelling import closest

COMPONENT_NAME = re.compile(r"[A-Za-z0-9]+([_-][A-Za-z0-9]+)*")

RESERVED_WORDS = frozenset({"use", *dir(BaseModel)})
"""Names that no key of a settings table can have."""


def check_components(components: Iterable[Component]) -> None:
    """Check the components of one plugin: all but their kinds. No two may be alike.

    Raises:
        PluginError: what is wrong, and what would be right.
    """
    seen: set[tuple[str, str]] = set()
    for component in components:
        _check_component(component)
        key = (component.kind, folded(component.name))
        if key in seen:
            raise PluginError(f"it offers {component.kind} {component.name!r} twice")
        seen.add(key)


def check_kinds_of(components: Iterable[Component], kinds: Mapping[str, KindSpec]) -> None:
    """Check that components are of known kinds, and declare capabilities that their kinds know.

    Raises:
        UnknownKindError: a component is of no known kind.
        PluginError: a component declares an unknown capability; says what would be right.
    """
    for component in components:
        if component.kind not in kinds:
            hint = closest(component.kind, kinds) or f"; the kinds are {', '.join(kinds)}"
            raise UnknownKindError(
                component.kind, f"component {component.name!r} has the unknown kind {component.kind!r}{hint}"
            )
        _check_capabilities(component, _capabilities(kinds[component.kind], kinds))


class UnknownKindError(PluginError):
    """A component is of a kind that no active plugin brings.

    Attributes:
        kind: Name of that kind.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def folded(name: str) -> str:
    """A name as the environment knows it: without case, and with `_` for `-`."""
    return name.lower().replace("-", "_")


def _check_component(component: Component) -> None:
    if not isinstance(component.kind, str):
        raise PluginError(f"component {component.name!r}: kind must be the name of a kind, not {component.kind!r}")
    if not isinstance(component.name, str) or not COMPONENT_NAME.fullmatch(component.name):
        raise PluginError(
            f"{component.kind} has the name {component.name!r}; a name is letters and digits, in parts joined by "
            "single '_' or '-'"
        )
    if component.name in RESERVED_WORDS:
        raise PluginError(f"{component.kind} {component.name!r}: this name is reserved, choose another one")
    what = f"{component.kind} {component.name!r}"
    if not isinstance(component.capabilities, frozenset):
        raise PluginError(f"{what}: capabilities must be a frozenset of words, not {component.capabilities!r}")
    _check_factory(what, component.factory)
    _check_settings(what, component.settings)
    if not isinstance(component.summary, str) or "\n" in component.summary:
        raise PluginError(f"{what}: summary must be one line of text, not {component.summary!r}")


def _capabilities(kind: KindSpec, kinds: Mapping[str, KindSpec]) -> frozenset[str]:
    """Words that a component of a kind may declare: those of its row, and its parts."""
    return frozenset(kind.capabilities) | {part.name for part in kinds.values() if part.part_of == kind.name}


def _check_capabilities(component: Component, known: frozenset[str]) -> None:
    for word in component.capabilities - known:
        hint = closest(str(word), known) or f"; for {component.kind} these are known: {sorted(known)}"
        raise PluginError(f"{component.kind} {component.name!r} declares the unknown capability {word!r}{hint}")


def _check_factory(what: str, factory: Callable[..., Any]) -> None:
    if not callable(factory):
        raise PluginError(f"{what}: factory must be callable, not {factory!r}")
    try:
        inspect.signature(factory).bind(None, None)
    except TypeError as error:
        raise PluginError(
            f"{what}: factory {factory!r} must take two arguments, (settings, context): {error}"
        ) from None
    except ValueError:  # a built-in callable without a signature
        return


def _check_settings(what: str, model: Any) -> None:
    if not (inspect.isclass(model) and issubclass(model, BaseModel)):
        raise PluginError(
            f"{what}: settings must be a pydantic model class, such as a ComponentSettings, not {model!r}"
        )
    for part in _models_in(model, set()):
        if part.model_config.get("extra") != "forbid":
            raise PluginError(
                f"{what}: the settings model {part.__qualname__} must have extra='forbid', else a misspelt key goes "
                "unnoticed; derive it from ComponentSettings"
            )
        if not part.model_config.get("frozen"):
            raise PluginError(
                f"{what}: the settings model {part.__qualname__} must have frozen=True; "
                "derive it from ComponentSettings"
            )
        for name, field in part.model_fields.items():
            if field.alias or field.validation_alias:
                raise PluginError(f"{what}: {part.__qualname__}.{name} has an alias; settings are known by one name")
    if has_defaults(model):
        _check_defaults(what, model)


def has_defaults(model: type[BaseModel]) -> bool:
    """Whether the model can be built from nothing."""
    return not any(field.is_required() for field in model.model_fields.values())


def _check_defaults(what: str, model: type[BaseModel]) -> None:
    try:
        model()
    except Exception as error:
        raise PluginError(f"{what}: the defaults of {model.__qualname__} do not satisfy it: {error}") from error


def _models_in(annotation: Any, seen: set[type]) -> Iterator[type[BaseModel]]:
    """The model classes within a type annotation, their fields' included, each once."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        if annotation in seen:
            return
        seen.add(annotation)
        yield annotation
        for field in annotation.model_fields.values():
            yield from _models_in(field.annotation, seen)
    for part in get_args(annotation):
        yield from _models_in(part, seen)
