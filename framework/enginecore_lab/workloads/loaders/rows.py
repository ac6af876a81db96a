"""Rows of trace files, read strictly: what is wrong is said with file, line, field and value."""

import csv
import math
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from enginecore.errors import ConfigurationError
from enginecore_lab.workload import Workload, WorkloadRequest


class TraceRow:
    """One row, by field.

    Args:
        path: The file.
        line: In it, from 1.
        fields: Contents of the row: text in a CSV file, values in JSON.
    """

    __slots__ = ("fields", "line", "path")

    def __init__(self, path: Path, line: int, fields: Mapping[str, Any]) -> None:
        self.path = path
        self.line = line
        self.fields = fields

    def integer(self, field: str, least: int, default: int | None = None) -> int:
        """A whole number of at least that much.

        Raises:
            ConfigurationError: there is something else.
        """
        value = self._get(field, default)
        try:
            number = int(value)
        except (ValueError, TypeError, OverflowError):
            number = least - 1
        if number < least or isinstance(value, bool) or (isinstance(value, float) and value != number):
            self.refuse(field, value, f"a whole number of at least {least}")
        return number

    def number(self, field: str, least: float = -math.inf, default: float | None = None) -> float:
        """A finite number of at least that much.

        Raises:
            ConfigurationError: there is something else.
        """
        value = self._get(field, default)
        try:
            number = float(value)
        except (ValueError, TypeError, OverflowError):
            number = math.nan
        if not math.isfinite(number) or number < least or isinstance(value, bool):
            self.refuse(field, value, "a finite number" + (f" of at least {least:g}" if least > -math.inf else ""))
        return number

    def text(self, field: str, default: str | None = None) -> str:
        """Text.

        Raises:
            ConfigurationError: there is something else.
        """
        value = self._get(field, default)
        if not isinstance(value, str):
            self.refuse(field, value, "text")
        return value

    def hash_ids(self, field: str) -> tuple[int, ...]:
        """A list of ids; none if the field is missing.

        Raises:
            ConfigurationError: there is something else.
        """
        value = self.fields.get(field, ())
        right = isinstance(value, list | tuple) and set(map(type, value)) <= {int}
        if not right or (value and not 0 <= min(value) <= max(value) < 1 << 63):
            self.refuse(field, value, "a list of whole numbers from 0 to 2^63 - 1")
        return tuple(value)

    def has(self, field: str) -> bool:
        """Whether it says anything there."""
        return self.fields.get(field) is not None

    def refuse(self, field: str, value: object, expected: str) -> NoReturn:
        """Say what is wrong with a field.

        Raises:
            ConfigurationError: always.
        """
        raise ConfigurationError(f"{self.path}, line {self.line}: {field} must be {expected}, got {value!r:.80}")

    def _get(self, field: str, default: object) -> Any:
        value = self.fields.get(field)
        if value is not None:
            return value
        if default is None:
            self.refuse(field, value, "given")
        return default


def csv_rows(path: Path, columns: Sequence[str]) -> Iterator[TraceRow]:
    """The rows of a CSV file that has at least these columns.

    Raises:
        ConfigurationError: the file cannot be read or lacks a column, or a row is too short or too long.
    """
    with _reading(path), path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        names = reader.fieldnames or ()
        if missing := [column for column in columns if column not in names]:
            raise ConfigurationError(f"{path}, line 1: column {missing[0]!r} is missing; there are {list(names)}")
        for fields in reader:
            row = TraceRow(path, reader.line_num, fields)
            if None in fields or None in fields.values():
                row.refuse("the row", [v for v in fields.values() if v is not None], f"{len(names)} fields")
            yield row


def json_rows(path: Path) -> Iterator[TraceRow]:
    """The lines of a JSONL file. Empty ones are passed over.

    Raises:
        ConfigurationError: the file cannot be read, or a line is no JSON object.
    """
    decoder = msgspec.json.Decoder()
    with _reading(path), path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if number == 1:
                line = line.removeprefix(BOM_UTF8)
            if not line.strip():
                continue
            try:
                fields = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise ConfigurationError(f"{path}, line {number}: no JSON ({error}): {line!r:.80}") from error
            if not isinstance(fields, dict):
                TraceRow(path, number, {}).refuse("the line", fields, "a JSON object")
            yield TraceRow(path, number, fields)


class _reading:
    """Says of files that cannot be read which they are."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        if isinstance(error, OSError | UnicodeDecodeError | csv.Error):
            raise ConfigurationError(f"{self._path} cannot be read: {error}") from error


def least_tokens(drop_empty: bool) -> int:
    """Prompt and output need a token each; rows that have none are read where they are to be left out."""
    return 0 if drop_empty else 1


def trace(path: Path, requests: Iterable[WorkloadRequest], block_size: int = 0) -> Workload:
    """The workload that a file holds: without empty requests, in order of arrival, the first of them at 0.

    Raises:
        ConfigurationError: it holds none.
    """
    kept = sorted((each for each in requests if each.num_prompt_tokens and each.num_output_tokens), key=_arrival)
    if not kept:
        raise ConfigurationError(f"{path} holds no requests")
    start = kept[0].arrival
    if start:
        kept = [msgspec.structs.replace(each, arrival=each.arrival - start) for each in kept]
    return Workload(name=path.stem, requests=kept, block_size=block_size)


def _arrival(request: WorkloadRequest) -> float:
    return request.arrival


def checked_hash_ids(row: TraceRow, num_tokens: int, block_size: int) -> tuple[int, ...]:
    """Hash ids of the row; they name no more blocks than the tokens that they may tell of.

    Raises:
        ConfigurationError: they do, or they are no ids.
    """
    ids = row.hash_ids("hash_ids")
    most = -(-num_tokens // block_size)
    if len(ids) > most:
        row.refuse("hash_ids", f"{len(ids)} ids", f"at most {most}: {num_tokens} tokens in blocks of {block_size}")
    return ids
