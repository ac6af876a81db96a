"""Experiment files: read with errors that name the key, its value, and what would be right."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from enginecore.errors import ConfigurationError
from enginecore.registry import Registry
from enginecore.settings import load_registry
from enginecore.settings.sentences import describe_problem, find_problems
from enginecore.settings.sources import Values, expanded, file_layer, nested, overlay
from enginecore_lab.experiment import Experiment

_LONGEST_VALUE = 80


def load_experiment(source: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Experiment:
    """Read an experiment.

    Args:
        source: A TOML, YAML or JSON file, after which the experiment is called if it has no name; or what such a file
            holds. A result.json is the experiment that gave it.
        overrides: By dotted key, such as "workload.path": on top of it.

    Raises:
        ConfigurationError: what is wrong, all of it.
    """
    values = dict(source) if isinstance(source, Mapping) else {"name": Path(source).stem, **file_layer(source).values}
    if {"experiment", "comparisons"} <= values.keys():
        held = values["experiment"]
        if not isinstance(held, Mapping):
            raise ConfigurationError(f"{source} holds no experiment, but {held!r:.{_LONGEST_VALUE}} in its place")
        values = dict(held)
    for key, value in (overrides or {}).items():
        values = overlay(values, nested(key.split("."), value))
    try:
        return Experiment.model_validate(values, context={"registry": _registry(values)})
    except ValidationError as error:
        label = "the experiment" if isinstance(source, Mapping) else f"experiment {source}"
        raise ConfigurationError(_message(label, error, values)) from None


def _registry(values: Values) -> Registry:
    """The plugins that the engines of the arms have, whose workloads and metrics the experiment can choose."""
    engine = values.get("engine")
    plugins = expanded(engine).get("plugins", {}) if isinstance(engine, Mapping) else {}
    return load_registry({"plugins": plugins}, environ={})


def parse_overrides(texts: Iterable[str]) -> Values:
    """Turn `--set` texts such as "replicates=8" into overrides: a value is read as TOML, or else is a text.

    Raises:
        ConfigurationError: no `=`, or no key.
    """
    overrides: Values = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not all(part.strip() for part in key.split(".")):
            raise ConfigurationError(f"--set {text!r}: write KEY=VALUE, for example --set replicates=8")
        overrides[key.strip()] = _parsed(value.strip())
    return overrides


def _parsed(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _message(label: str, error: ValidationError, values: Values) -> str:
    lines = [describe_problem(problem, values) for problem in find_problems(error, values)]
    if len(lines) == 1:
        return f"{label}: {lines[0]}"
    return "\n  ".join([f"{label}: {len(lines)} keys are wrong:", *lines])
