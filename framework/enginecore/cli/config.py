"""The command `enginecore config`: the settings in force, and where each value came from."""

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from enginecore.cli.options import AsJson, ConfigFile, Overrides
from enginecore.settings import Loaded, load_settings, parse_overrides


def config(
    config: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
    schema: Annotated[bool, typer.Option("--schema", help="Write a JSON schema of all settings instead.")] = False,
) -> None:
    """Show the settings in force, and where each value came from.

    The table leaves out components that do not run.
    """
    loaded = load_settings(parse_overrides(overrides or ()), config_file=config)
    if schema:
        typer.echo(json.dumps(type(loaded.settings).model_json_schema(), indent=2))
    elif as_json:
        plain = {"settings": loaded.settings.model_dump(mode="json"), "sources": dict(loaded.sources)}
        typer.echo(json.dumps(plain, indent=2))
    else:
        _print_table(loaded)


def _print_table(loaded: Loaded) -> None:
    table = Table()
    for heading in ("setting", "value", "from"):
        table.add_column(heading, overflow="fold")
    for key, value in _effective(loaded):
        table.add_row(escape(key), escape(json.dumps(value)), escape(loaded.sources[key]))
    Console().print(table)


def _effective(loaded: Loaded) -> Iterator[tuple[str, Any]]:
    values = loaded.settings.model_dump(mode="json")
    tables = [kind.table for kind in loaded.registry.kinds.values() if kind.table is not None]
    in_use = {table: values[table]["use"] for table in tables}
    for key, source in loaded.sources.items():
        table, *rest = key.split(".")
        idle = table in in_use and rest[0] not in ("use", in_use[table])
        value = _at(values, key)
        if value != {} and (not idle or source != "default"):
            yield key, value


def _at(values: Any, key: str) -> Any:
    for part in key.split("."):
        values = values[part]
    return values
