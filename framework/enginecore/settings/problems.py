"""Problems of settings: pydantic's errors, unknown keys and components that cannot run, as one
error.
"""

from collections.abc import Iterator, Mapping, Sequence

from pydantic import BaseModel, ValidationError

from enginecore.errors import ConfigurationError, PluginError
from enginecore.registry import Registry
from enginecore.registry.spelling import closest
from enginecore.settings.model import ComponentTable
from enginecore.settings.sentences import Path, Problem, describe_problem, find_problems, look_up
from enginecore.settings.sources import Layers, Values, model_of


def configuration_error(problems: Sequence[Problem], layers: Layers) -> ConfigurationError:
    """All problems in one error: dotted key, value, where it came from, and what would be right."""
    lines = [describe_problem(problem, layers.values, layers.origin(problem.path)) for problem in problems]
    if len(lines) == 1:
        return ConfigurationError(lines[0])
    indented = "\n".join("  " + line.replace("\n", "\n  ") for line in lines)
    return ConfigurationError(f"{len(lines)} settings are wrong:\n{indented}")


def problems_of(
    error: ValidationError, values: Values, model: type[BaseModel], registry: Registry | None = None
) -> list[Problem]:
    """The problems of settings that `model` refuses, one per setting.

    Args:
        error: The errors of `model`.
        values: The settings as given.
        model: The settings that there are.
        registry: To explain tables of components that are not there.
    """
    problems = find_problems(error, values, lambda path: explain_unknown(path, values, model, registry))
    return [_with_use(problem, model) for problem in problems]


def _with_use(problem: Problem, model: type[BaseModel]) -> Problem:
    """The table of a kind that is given as something else: `use` is the key that was meant."""
    table = _model_at(model, problem.path)
    if table is None or not issubclass(table, ComponentTable):
        return problem
    return problem._replace(sentence=problem.sentence.replace("set its keys", f"set {problem.path[0]}.use", 1))


def explain_unknown(path: Path, values: Values, model: type[BaseModel], registry: Registry | None = None) -> str:
    """The sentence for a key that does not exist: the closest one that does, or why its component
    is not loaded.
    """
    parent = _model_at(model, path[:-1])
    if registry is not None and isinstance(look_up(values, path)[1], Mapping):
        for kind in registry.kinds.values():
            if path[:-1] == (kind.table,):
                return _explain_absent(registry, kind.name, path[-1])
    known, prefix = list(parent.model_fields if parent else ()), "".join(f"{key}." for key in path[:-1])
    near = closest(path[-1], known, prefix, cutoff=0.8)  # a slip of the pen, before a setting of another table
    homes = [".".join(home) for home in _keys(model, ()) if home[-1] == path[-1]]
    if homes and not near:
        return f"no such setting; did you mean {' or '.join(homes[:3])}?"
    here = ", ".join(prefix + name for name in known)
    return "no such setting" + (near or closest(path[-1], known, prefix) or f"; here these are known: {here}")


def _explain_absent(registry: Registry, kind: str, name: str) -> str:
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
    """Problems of every `use` that was given and that names no component which can run."""
    problems: list[Problem] = []
    for kind in registry.kinds.values():
        path = (kind.table or "", "use")
        given, name = look_up(values, path)
        if given and isinstance(name, str):
            try:
                registry.get(kind.name, name)
            except PluginError as error:
                problems.append(Problem(path, str(error)))
    return problems
