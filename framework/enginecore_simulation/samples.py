"""Tables of measured steps, as calibrations log them."""

import csv
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from enginecore.errors import ConfigurationError
from enginecore_simulation.features import StepFeatures

COLUMNS = (*StepFeatures._fields, "seconds")


class StepSample(NamedTuple):
    """A step, and how many seconds it took."""

    features: StepFeatures
    seconds: float


def write_samples(file: Path, samples: Iterable[StepSample]) -> None:
    """Write a CSV table with the columns of `StepFeatures` and `seconds`."""
    with file.open("w", newline="", encoding="utf-8") as out:
        table = csv.writer(out)
        table.writerow(COLUMNS)
        table.writerows((*sample.features, sample.seconds) for sample in samples)


def read_samples(file: Path) -> list[StepSample]:
    """Read such a table. Columns but `num_tokens` and `seconds` may be left out: those features are 0 everywhere.

    Raises:
        ConfigurationError: it cannot be read, or holds something else; names the line.
    """
    return [
        StepSample(StepFeatures(*(cells[name] for name in StepFeatures._fields)), cells["seconds"])  # type: ignore[arg-type]
        for cells in _rows(file, required=("num_tokens", "seconds"))
    ]


def read_seconds(file: Path) -> list[float]:
    """The column `seconds` alone.

    Raises:
        ConfigurationError: as `read_samples`.
    """
    return [cells["seconds"] for cells in _rows(file, required=("seconds",))]


def _rows(file: Path, required: Iterable[str]) -> Iterator[Mapping[str, float]]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the table of steps {file} cannot be read: {error}") from error
    table = csv.DictReader(text.splitlines(), strict=True)
    header = table.fieldnames or ()
    missing, unknown = [n for n in required if n not in header], [n for n in header if n not in COLUMNS]
    if missing or unknown:
        wrong = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(map(repr, unknown))}"
        raise ConfigurationError(f"the table of steps {file} {wrong}; its columns are {', '.join(COLUMNS)}")
    for row in table:
        yield dict.fromkeys(COLUMNS, 0.0) | {
            name: _number(cell, f"{file}, line {table.line_num}, {name}") for name, cell in row.items()
        }


def _number(cell: object, where: str) -> float:
    try:
        value = float(str(cell))
    except ValueError:
        value = -1.0
    if not 0 <= value or not isfinite(value):
        raise ConfigurationError(f"{where} must be a number of at least 0, got {cell!r:.100}")
    return value
