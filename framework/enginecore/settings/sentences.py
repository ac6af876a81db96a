"""Sentences for pydantic's errors: key as written, value, and what would be right."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from enginecore.registry.spelling import closest

_LONGEST_VALUE = 80

Path = tuple[str, ...]


class Problem(NamedTuple):
    """One value that is wrong.

    Attributes:
        path: Key of the setting, as it was written: one word per table.
        sentence: A sentence that says what would be right.
    """

    path: Path
    sentence: str


def find_problems(
    error: ValidationError, values: Any, explain_unknown: Callable[[Path], str] | None = None
) -> list[Problem]:
    """One problem per key; the complaints of a union's branches about one value are joined.

    Args:
        error: The errors of a model.
        values: The data that it refused.
        explain_unknown: The sentence for a key that the model does not have. None: pydantic's own.
    """
    sentences: dict[Path, dict[str, None]] = {}
    for details in error.errors():
        path = _written_path(details, values)
        is_unknown = explain_unknown is not None and details["type"] == "extra_forbidden"
        sentence = explain_unknown(path) if explain_unknown and is_unknown else _sentence(details)
        sentences.setdefault(path, {})[sentence] = None
    return [Problem(path, ", or ".join(said)) for path, said in sentences.items()]


def describe_problem(problem: Problem, values: Any, origin: str = "") -> str:
    """Key, value and sentence in a line. `origin` is where the value was given; empty: not worth
    mentioning.
    """
    if not problem.path:
        return problem.sentence
    key = ".".join(problem.path)
    is_given, value = look_up(values, problem.path)
    if not is_given:
        return f"{key}: {problem.sentence}"
    shown = "" if _holds_tables(value) else f" = {_shortened(value)}"
    return f"{key}{shown}{origin and f' ({origin})'}: {problem.sentence}"


def look_up(values: Any, path: Sequence[str]) -> tuple[bool, Any]:
    """Whether there is a value at `path`, and the value. A word of digits is also an index of a
    list.
    """
    for key in path:
        if isinstance(values, Mapping) and key in values:
            values = values[key]
        elif isinstance(values, list | tuple) and key.isdecimal() and int(key) < len(values):
            values = values[int(key)]
        else:
            return False, None
    return True, values


def _written_path(details: ErrorDetails, values: Any) -> Path:
    """The key as it was written. pydantic puts branches of unions in, which are no keys."""
    path: list[str] = []
    for part in details["loc"]:
        if look_up(values, [*path, str(part)])[0]:
            path.append(str(part))
    match details["type"]:
        case "missing":
            path.append(str(details["loc"][-1]))
        case "union_tag_not_found" | "union_tag_invalid":
            path.append(details.get("ctx", {}).get("discriminator", "").strip("'"))
    return tuple(path)


def _sentence(details: ErrorDetails) -> str:
    context = details.get("ctx", {})
    match details["type"]:
        case "missing":
            return "must be set"
        case "value_error" | "assertion_error":
            return str(context.get("error", details["msg"]))
        case "model_type" | "model_attributes_type":
            return "is a table: set its keys instead"
        case "tuple_type" | "list_type" | "set_type":
            return 'must be a list, such as ["a", "b"]; an empty one is []'
        case "union_tag_not_found":
            return "must be set: it says what the other keys mean"
        case "union_tag_invalid":
            tags = [tag.strip("' ") for tag in context["expected_tags"].split(",")]
            return f"must be one of {', '.join(tags)}{closest(context['tag'], tags)}"
    return details["msg"].replace("Input should be", "must be", 1)


def _holds_tables(value: object) -> bool:
    """Whether it is a table or a list of tables, too long to show and known by its key."""
    if isinstance(value, list | tuple):
        return any(isinstance(item, Mapping) for item in value)
    return isinstance(value, Mapping)


def _shortened(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError) as error:  # Python writes neither huge numbers nor deep lists
        return f"{type(value).__name__} that cannot be shown ({error})"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
