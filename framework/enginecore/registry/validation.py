"""What a plugin must satisfy to be registered. Every check is about the plugin as a whole."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from types import ModuleType
from typing import Any, get_args

import pluggy
from pydantic import BaseModel

from enginecore.errors import PluginError
from enginecore.plugin import Component, HookSpecs, KindSpec
from enginecore.registry.spelling import closest

HOOKS = tuple(name for name in vars(HookSpecs) if name.startswith("enginecore_"))

_COMPONENTS = "enginecore_components"
_MARK = "enginecore_impl"  # the attribute that pluggy's marker sets
_NAME = re.compile(r"[A-Za-z0-9]+([_-][A-Za-z0-9]+)*")
_RESERVED = frozenset({"use", *dir(BaseModel)})


# -- hooks -----------------------------------------------------------------------------------------


def check_hooks(plugin: object) -> None:
    """Refuse a plugin with a function that looks like a hook and would never be called.

    Argument names are left to pluggy, which checks them on registration.

    Raises:
        PluginError: names the function and the hook that it is closest to.
    """
    if not isinstance(plugin, ModuleType):
        raise PluginError(f"the entry point must name a module, not {plugin!r}")
    hooks = [hook for name, value in vars(plugin).items() if (hook := _implemented_hook(name, value))]
    if not hooks:
        raise PluginError(f"it implements no hook, so it does nothing; the hooks are {', '.join(HOOKS)}")
    for hook in HOOKS:
        if hooks.count(hook) > 1:
            raise PluginError(f"it implements {hook} {hooks.count(hook)} times")


def _implemented_hook(name: str, value: Any) -> str | None:
    options = getattr(value, _MARK, None) if inspect.isroutine(value) else None
    if options is None:
        _check_unmarked(name, value)
        return None
    hook: str = options["specname"] or name
    if hook not in HOOKS:
        hint = closest(hook, HOOKS) or f"; the hooks are {', '.join(HOOKS)}"
        raise PluginError(f"{name}() is marked with @hookimpl, but there is no hook {hook!r}{hint}")
    if options["wrapper"] or options["hookwrapper"]:
        raise PluginError(f"{name}() is a hook wrapper: hooks of enginecore are called one by one and have no wrappers")
    if inspect.iscoroutinefunction(value) or (hook != _COMPONENTS and inspect.isgeneratorfunction(value)):
        raise PluginError(f"{name}() must be a plain function: as a coroutine or generator it would never run")
    return hook


def _check_unmarked(name: str, value: Any) -> None:
    if name in HOOKS:
        raise PluginError(f"{name} is the name of a hook but lacks @hookimpl, so it would never be called")
    looks_like_a_hook = name.startswith("enginecore_") or get_close_matches(name, HOOKS, cutoff=0.85)
    if inspect.isroutine(value) and looks_like_a_hook:
        hint = closest(name, HOOKS) or f"; the hooks are {', '.join(HOOKS)}"
        raise PluginError(f"there is no hook {name!r}{hint}")


# -- components ------------------------------------------------------------------------------------


def offered_components(
    manager: pluggy.PluginManager, plugin: object, kinds: Mapping[str, KindSpec]
) -> tuple[Component, ...]:
    """Ask one registered plugin for its components, and check them.

    Raises:
        PluginError: what is wrong with them. What the plugin itself raises comes through.
    """
    implementations = getattr(manager.hook, _COMPONENTS).get_hookimpls()
    if not any(implementation.plugin is plugin for implementation in implementations):
        return ()
    others = [other for other in manager.get_plugins() if other is not plugin]
    results: list[Any] = manager.subset_hook_caller(_COMPONENTS, remove_plugins=others)()
    return checked_components(results[0] if results else None, kinds)  # pluggy leaves None out


def checked_components(offered: Any, kinds: Mapping[str, KindSpec]) -> tuple[Component, ...]:
    """The components of one plugin, each checked, no two alike.

    Raises:
        PluginError: what is wrong, and what would be right.
    """
    if isinstance(offered, Component) or not isinstance(offered, Iterable):
        raise PluginError(f"enginecore_components() must return a list of Components, not {offered!r}")
    components = tuple(offered)
    seen: set[tuple[str, str]] = set()
    for component in components:
        _check_component(component, kinds)
        # the environment knows neither case nor dashes
        key = (component.kind, component.name.lower().replace("-", "_"))
        if key in seen:
            raise PluginError(f"it offers {component.kind} {component.name!r} twice")
        seen.add(key)
    return components


def _check_component(component: Any, kinds: Mapping[str, KindSpec]) -> None:
    if not isinstance(component, Component):
        raise PluginError(f"enginecore_components() must return Components; one of them is {component!r}")
    if component.kind not in kinds:
        hint = closest(str(component.kind), kinds) or f"; the kinds are {', '.join(kinds)}"
        raise PluginError(f"component {component.name!r} has the unknown kind {component.kind!r}{hint}")
    if not isinstance(component.name, str) or not _NAME.fullmatch(component.name):
        raise PluginError(
            f"{component.kind} has the name {component.name!r}; a name is letters and digits, in parts joined by "
            "single '_' or '-'"
        )
    if component.name in _RESERVED:
        raise PluginError(f"{component.kind} {component.name!r}: this name is reserved, choose another one")
    what = f"{component.kind} {component.name!r}"
    _check_capabilities(what, component, kinds[component.kind])
    _check_factory(what, component.factory)
    _check_settings(what, component.settings)
    if not isinstance(component.summary, str) or "\n" in component.summary:
        raise PluginError(f"{what}: summary must be one line of text, not {component.summary!r}")


def _check_capabilities(what: str, component: Component, kind: KindSpec) -> None:
    known, words = kind.capabilities, component.capabilities
    if not isinstance(words, frozenset):
        raise PluginError(f"{what}: capabilities must be a frozenset of words, not {words!r}")
    for word in words:
        if word not in known:
            hint = closest(str(word), known) or f"; for {kind.name} these are known: {sorted(known)}"
            raise PluginError(f"{what} declares the unknown capability {word!r}{hint}")


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
