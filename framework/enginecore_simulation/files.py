"""Files of step costs: written by a calibration, read by simulated executors."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from enginecore.errors import ConfigurationError
from enginecore_simulation.costs import CostModel, StepCosts
from enginecore_simulation.fit import Fit, fit_costs
from enginecore_simulation.samples import read_samples

REGIMES = ("decode", "mixed")
NOTES = ("held_out", "measured")
PARAMETERS = tuple(each.name for each in fields(StepCosts))


def write_costs(file: Path, fit: Fit, measured: Mapping[str, str]) -> None:
    """Write fitted costs as TOML, with their errors, and with what they were measured on for people to read."""
    model = fit.model
    lines = [f"gap = {model.gap!r}"]
    lines += _table("decode", asdict(model.decode)) + _table("mixed", asdict(model.mixed))
    for regime, errors in fit.errors.items():
        lines += _table(f"held_out.{regime}", asdict(errors))
    lines += _table("measured", measured)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_costs(file: Path) -> CostModel:
    """Costs by a TOML or JSON file as `write_costs` makes it, or fitted to a CSV table of steps.

    Raises:
        ConfigurationError: it cannot be read, or is something else; says what would do.
    """
    if file.suffix == ".csv":
        return fit_costs(read_samples(file)).model
    raw = _load(file)
    if unknown := raw.keys() - {"gap", *REGIMES, *NOTES}:
        raise ConfigurationError(
            f"{file} holds {', '.join(map(repr, sorted(unknown)))}; step costs have gap, {', '.join(REGIMES)}"
        )
    gap = raw.get("gap", 0.0)
    if isinstance(gap, bool) or not isinstance(gap, int | float) or not 0 <= gap < float("inf"):
        raise ConfigurationError(f"gap in {file} must be a number of seconds of at least 0, got {gap!r:.100}")
    decode, mixed = (_costs(raw.get(regime), f"{regime} in {file}") for regime in REGIMES)
    return CostModel(decode, mixed, float(gap))


def _table(name: str, values: Mapping[str, Any]) -> list[str]:
    return ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]


def _load(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
        raw = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the file of step costs {file} cannot be read: {error}") from error
    if not isinstance(raw, dict):
        raise ConfigurationError(f"the file of step costs {file} must hold an object, not a {type(raw).__name__}")
    return raw


def _costs(table: Any, where: str) -> StepCosts:
    if not isinstance(table, dict):
        raise ConfigurationError(f"{where} must be a table of {', '.join(PARAMETERS)}, got {table!r:.100}")
    for name, value in table.items():
        if name not in PARAMETERS:
            raise ConfigurationError(f"{where} has no {name!r}; it has {', '.join(PARAMETERS)}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigurationError(f"{where}: {name} must be a number, got {value!r:.100}")
    return StepCosts(**table)
