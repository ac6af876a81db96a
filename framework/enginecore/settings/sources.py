"""Sources of settings: keyword arguments, the environment and a file, each as one `Layer`.

Texts are read by pydantic-settings' own environment source. Its file sources are not used: they
take a missing file for an empty one, keep the last of two equal keys in YAML and JSON, and name no
file in their errors. Nor is its source of arguments: it knows neither dotted keys nor where a value
was given.
"""

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource

from enginecore.errors import ConfigurationError

ENVIRONMENT_PREFIX = "ENGINECORE_"
NOT_SETTINGS = frozenset({"ENGINECORE_CACHE"})
"""Variables of the installation, not of an engine: the folder of converted models and compiled
kernels.
"""
_DELIMITER = "__"

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Layer:
    """Values of one source.

    Attributes:
        values: Nested: one dict per table.
        labels: Where it says so, by dotted key; a key stands for all below it, "" for everything.
    """

    values: Values
    labels: Mapping[str, str]

    def holds(self, path: Sequence[str]) -> bool:
        """Whether the value at `path` was given here, by itself or as a part of something."""
        value: Any = self.values
        for key in path:
            if not isinstance(value, Mapping):
                return True
            if key not in value:
                return False
            value = value[key]
        return True

    def label(self, path: Sequence[str]) -> str:
        """Label of the place where the value at `path` was given."""
        keys = [".".join(path[:n]) for n in range(len(path), -1, -1)]
        exact = next((self.labels[key] for key in keys if key in self.labels), None)
        below = [label for key, label in self.labels.items() if key.startswith(f"{keys[0]}.")]
        return exact or " and ".join(below)


NOTHING = Layer({}, {})
"""A source that is silent."""


@dataclass(frozen=True, slots=True)
class Layers:
    """All sources of one reading, the strongest first."""

    ordered: tuple[Layer, ...]

    @property
    def values(self) -> Values:
        """Values of all layers together; tables are merged key by key."""
        merged: Values = {}
        for layer in reversed(self.ordered):
            merged = overlay(merged, layer.values)
        return merged

    def origin(self, path: Sequence[str]) -> str:
        """Origin of the value at `path`: the label of the strongest layer that has it, or
        "default".
        """
        return next((layer.label(path) for layer in self.ordered if layer.holds(path)), "default")


def overlay(low: Mapping[str, Any], high: Mapping[str, Any]) -> Values:
    """`low` with what `high` says on top; tables are merged key by key."""
    merged = dict(low)
    for key, value in high.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            value = overlay(below, value)
        merged[key] = value
    return merged


def nested(path: Sequence[str], value: Any) -> Values:
    """Tables down to one value."""
    for key in reversed(path[1:]):
        value = {key: value}
    return {path[0]: value}


def expanded(table: Mapping[str, Any]) -> Values:
    """With tables in place of dotted keys, at every depth; what stands later lies on top."""
    values: Values = {}
    for key, value in table.items():
        inner = expanded(value) if isinstance(value, Mapping) else value
        values = overlay(values, nested(key.split("."), inner))
    return values


# -- texts: the environment and the command line ---------------------------------------------------


class Text(str):
    """A value that was given as text, from which its setting's type reads it."""


class _Texts(EnvSettingsSource):
    """pydantic-settings' reading of texts by the type of their setting, for texts that have dotted
    keys.
    """

    def __init__(self, model: type[BaseSettings], texts: Mapping[str, str]) -> None:
        super().__init__(model, case_sensitive=True, env_prefix="", env_nested_delimiter=".")
        self.env_vars = texts

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """A list or table. What is none stays text, so that its setting can refuse it by name."""
        return _parsed(value)


def _read_texts(texts: Mapping[str, str], model: type[BaseSettings]) -> Values:
    """Values by the types of `model`. Keys that it does not have are kept, for the error."""
    values = _Texts(model, texts)()
    for key, text in texts.items():
        if key.partition(".")[0] not in model.model_fields:
            values = overlay(values, nested(key.split("."), text))
    return _fitted(values, model)


def _fitted(values: Mapping[str, Any], model: type[BaseModel]) -> Values:
    """`values` with each text in the form that its setting takes: strict settings take no text for
    a number.
    """
    fitted: Values = {}
    for key, value in values.items():
        field = model.model_fields.get(key)
        inner = None if field is None else model_of(field.annotation)
        if isinstance(value, Mapping) and inner is not None:
            value = _fitted(value, inner)
        elif isinstance(value, str) and field is not None:
            forms = [None] if value == "null" else [value, _parsed(value)]
            value = next((form for form in forms if _fits(model, key, form)), value)
        fitted[key] = value
    return fitted


def _fits(model: type[BaseModel], key: str, value: Any) -> bool:
    try:
        model.model_validate({key: value})
    except ValidationError as error:  # of other settings, that are missing here, as well
        return all(details["loc"][:1] != (key,) for details in error.errors())
    return True


def _parsed(text: str) -> Any:
    """A JSON or TOML value, or the text if it is neither."""
    for parse in (json.loads, lambda text: tomllib.loads(f"value = {text}")["value"]):
        try:
            return parse(text)
        except (ValueError, RecursionError):
            continue
    return text


# -- arguments -------------------------------------------------------------------------------------


def arguments_layer(arguments: Mapping[str, Any], model: type[BaseSettings]) -> Layer:
    """Keyword arguments: nested dicts, or dotted keys, which go on top of the nested ones."""
    values: Values = {key: value for key, value in arguments.items() if "." not in key}
    for key, value in arguments.items():
        if "." in key:
            values = overlay(values, nested(key.split("."), value))
    texts = {key: value for key, value in arguments.items() if isinstance(value, Text)}
    return Layer(overlay(values, _read_texts(texts, model)), {"": "argument"})


def parse_overrides(overrides: Iterable[str]) -> Values:
    """Turn `--set` texts such as "scheduler.use=priority" into arguments for `load_settings`.

    Each value is read by its setting's type: as it stands, or as a JSON or TOML value. `null` is
    None. Strings need no quotes.

    Raises:
        ConfigurationError: no `=`, or no key.
    """
    values: Values = {}
    for override in overrides:
        key, separator, text = override.partition("=")
        if not separator or not all(part.strip() for part in key.split(".")):
            raise ConfigurationError(f"--set {override!r}: write KEY=VALUE, for example --set scheduler.use=fcfs")
        text = text.strip()
        values[key.strip()] = _parsed(text) if text.startswith(('"', "'")) else Text(text)
    return values


# -- environment -----------------------------------------------------------------------------------


def environment_layer(environ: Mapping[str, str], model: type[BaseSettings]) -> Layer:
    """Variables such as ENGINECORE_SCHEDULER__USE."""
    labels: dict[str, str] = {}
    texts: dict[str, str] = {}
    for name, text in environ.items():
        if name.upper().startswith(ENVIRONMENT_PREFIX) and name.upper() not in NOT_SETTINGS:
            key = ".".join(_matching_keys(name[len(ENVIRONMENT_PREFIX) :].split(_DELIMITER), model))
            labels[key] = f"environment {name}"
            texts[key] = text
    return Layer(_read_texts(texts, model), labels)


def _matching_keys(words: Sequence[str], model: type[BaseModel] | None) -> list[str]:
    """The keys that words of a variable's name stand for: the environment knows neither case nor
    dashes.
    """
    keys: list[str] = []
    for word in words:
        fields = {} if model is None else model.model_fields
        key = next((name for name in fields if _folded(name) == _folded(word)), word.lower())
        keys.append(key)
        model = model_of(fields[key].annotation) if key in fields else None
    return keys


def _folded(name: str) -> str:
    return name.lower().replace("-", "_")


def model_of(annotation: Any) -> type[BaseModel] | None:
    """The model that a table's annotation holds, also as `Model | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(model_of, get_args(annotation))), None)


# -- file ------------------------------------------------------------------------------------------


def file_layer(file: object) -> Layer:
    """A TOML, YAML or JSON file, by its suffix.

    Raises:
        ConfigurationError: not a path, missing, unreadable, malformed, or of another suffix; names
            file and line.
    """
    if not isinstance(file, str | Path):
        raise ConfigurationError(f"config_file must be the path of a file, got {file!r:.100}")
    path = Path(file)
    parse = _PARSERS.get(path.suffix.lower())
    if parse is None:
        raise ConfigurationError(f"config file {path}: the suffix must be one of {', '.join(_PARSERS)}")
    try:
        values = parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"config file {path} cannot be read: {error.strerror}") from error
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(f"config file {path} is malformed: {error}") from error
    except RecursionError as error:
        raise ConfigurationError(f"config file {path} is malformed: it is nested too deeply") from error
    if not isinstance(values, dict):
        raise ConfigurationError(f"config file {path} must hold a table of settings, not {type(values).__name__}")
    return Layer(values, {"": f"file {path}"})


def _unique(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    values: dict[Any, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"key {key!r} is there twice")
        values[key] = value
    return values


def _parse_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_unique)


class _YamlLoader(yaml.SafeLoader):
    """PyYAML's safe loader, except that a key that is there twice is an error, as in TOML."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for n, key in enumerate(keys):
            if key in keys[:n]:
                mark = node.value[n][0].start_mark
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is there twice", mark)
        return super().construct_mapping(node, deep)


def _parse_yaml(text: str) -> Any:
    values = yaml.load(text, _YamlLoader)  # a safe loader
    return {} if values is None else values


_PARSERS: dict[str, Callable[[str], Any]] = {
    ".toml": tomllib.loads,
    ".yaml": _parse_yaml,
    ".yml": _parse_yaml,
    ".json": _parse_json,
}
