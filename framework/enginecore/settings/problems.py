"""From pydantic's errors to lines that a user can act on."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from enginecore.errors import ConfigurationError, PluginError
from enginecore.plugin import Kind
from enginecore.registry import Registry
from enginecore.registry.spelling import closest
from enginecore.settings.model import TABLES
from enginecore.settings.sources import Layers, Values, model_of

_LONGEST_VALUE = 80

Path = tuple[str, ...]


class Problem(NamedTuple):
    """One setting that is wrong."""

    path: Path
    sentence: str


def configuration_error(problems: Sequence[Problem], layers: Layers) -> ConfigurationError:
    """All problems in one error: dotted key, value, where it came from, and what would be right."""
    lines = [_line(problem, layers) for problem in problems]
    if len(lines) == 1:
        return ConfigurationError(lines[0])
    indented = "\n".join("  " + line.replace("\n", "\n  ") for line in lines)
    return ConfigurationError(f"{len(lines)} settings are wrong:\n{indented}")


def _line(problem: Problem, layers: Layers) -> str:
    key = ".".join(problem.path)
    found, value = _look_up(layers.values, problem.path)
    if not found:
        return f"{key}: {problem.sentence}"
    shown = "" if isinstance(value, Mapping) else f" = {_shortened(value)}"
    return f"{key}{shown} ({layers.origin(problem.path)}): {problem.sentence}"


def _shortened(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError) as error:  # Python writes neither huge numbers nor deep lists
        return f"{type(value).__name__} that cannot be shown ({error})"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _look_up(values: Any, path: Sequence[str]) -> tuple[bool, Any]:
    for key in path:
        if isinstance(values, Mapping) and key in values:
            values = values[key]
        elif isinstance(values, list | tuple) and key.isdecimal() and int(key) < len(values):
            values = values[int(key)]
        else:
            return False, None
    return True, values


def problems_of(
    error: ValidationError, values: Values, model: type[BaseModel], registry: Registry | None = None
) -> list[Problem]:
    """One problem per setting; what a union's branches say of one value is joined.

    Args:
        error: What pydantic says.
        values: What was validated.
        model: What it was validated against.
        registry: To explain tables of components that are not there.
    """
    sentences: dict[Path, list[str]] = {}
    for details in error.errors():
        path = _path(details, values)
        sentence = _sentence(details, path, values, model, registry)
        sentences.setdefault(path, [])
        if sentence not in sentences[path]:
            sentences[path].append(sentence)
    return [Problem(path, ", or ".join(said)) for path, said in sentences.items()]


def _path(details: ErrorDetails, values: Values) -> Path:
    """Where in `values` it is. pydantic appends the branch of a union, which nobody wrote."""
    whole = tuple(str(part) for part in details["loc"])
    if details["type"] == "missing":
        return whole
    length = next(n for n in range(len(whole), -1, -1) if _look_up(values, whole[:n])[0])
    return whole[:length]


def _sentence(
    details: ErrorDetails, path: Path, values: Values, model: type[BaseModel], registry: Registry | None
) -> str:
    match details["type"]:
        case "extra_forbidden":
            return explain_unknown(path, values, model, registry)
        case "missing":
            return "must be set"
        case "value_error" | "assertion_error":
            return str(details.get("ctx", {}).get("error", details["msg"]))
        case "model_type" | "model_attributes_type":
            example = f"{path[0]}.use" if path and path[0] in TABLES.values() and len(path) == 1 else "its keys"
            return f"is a table: set {example} instead"
        case "tuple_type" | "list_type" | "set_type":
            return 'must be a list, such as ["a", "b"]; an empty one is []'
    return details["msg"].replace("Input should be", "must be", 1)


def explain_unknown(path: Path, values: Values, model: type[BaseModel], registry: Registry | None = None) -> str:
    """What to say of a key that does not exist: the closest one that does, or why its component is not loaded."""
    parent = _model_at(model, path[:-1])
    if registry is not None and isinstance(_look_up(values, path)[1], Mapping):
        for kind, table in TABLES.items():
            if path[:-1] == (table,):
                return _explain_absent(registry, kind, path[-1])
    known, prefix = list(parent.model_fields if parent else ()), "".join(f"{key}." for key in path[:-1])
    homes = [".".join(home) for home in _keys(model, ()) if home[-1] == path[-1]]
    if homes:
        return f"no such setting; did you mean {' or '.join(homes[:3])}?"
    here = ", ".join(prefix + name for name in known)
    return "no such setting" + (closest(path[-1], known, prefix) or f"; here these are known: {here}")


def _explain_absent(registry: Registry, kind: Kind, name: str) -> str:
    try:
        registry.get(kind, name)
    except PluginError as error:
        return f"these are settings of a component that is not loaded: {error}"
    return "no such setting"


def _model_at(model: type[BaseModel] | None, path: Path) -> type[BaseModel] | None:
    for key in path:
        if model is None or key not in model.model_fields:
            return None
        model = model_of(model.model_fields[key].annotation)
    return model


def _keys(model: type[BaseModel], path: Path) -> Iterator[Path]:
    """All settings that are no tables."""
    for name, field in model.model_fields.items():
        inner = model_of(field.annotation)
        if inner is None:
            yield (*path, name)
        else:
            yield from _keys(inner, (*path, name))


def problems_of_choice(registry: Registry, values: Values) -> list[Problem]:
    """Problems of every `use` that somebody gave and that names nothing which can run."""
    problems: list[Problem] = []
    for kind, table in TABLES.items():
        given, name = _look_up(values, (table, "use"))
        if given and isinstance(name, str):
            try:
                registry.get(kind, name)
            except PluginError as error:
                problems.append(Problem((table, "use"), str(error)))
    return problems
