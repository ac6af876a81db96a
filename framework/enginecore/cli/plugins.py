"""`enginecore plugins`: what was found, and what came of it."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from enginecore.cli.options import AsJson, ConfigFile, Overrides
from enginecore.plugin import Component
from enginecore.registry import PluginRecord, Registry
from enginecore.settings import load_registry, parse_overrides

_COLOURS = {"active": "green", "blocked": "yellow", "failed": "red"}


def plugins(
    config: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a plugin failed.")] = False,
) -> None:
    """List all plugins, with their status and components.

    Exits with 0 even if some failed, unless --strict is given.
    """
    registry = load_registry(parse_overrides(overrides or ()), config_file=config)
    if as_json:
        typer.echo(json.dumps(_as_plain(registry), indent=2))
    else:
        _print_tables(registry)
    if strict and any(record.status == "failed" for record in registry.plugins):
        raise typer.Exit(1)


def _as_plain(registry: Registry) -> dict[str, Any]:
    return {
        "plugins": [_record_as_plain(record) for record in registry.plugins],
        "conflicts": [
            {"kind": kind, "name": name, "offered_by": [record.origin for record in records]}
            for (kind, name), records in registry.conflicts.items()
        ],
    }


def _record_as_plain(record: PluginRecord) -> dict[str, Any]:
    return {
        "entry_point": record.entry_point,
        "module": record.module,
        "distribution": record.distribution,
        "version": record.version,
        "status": record.status,
        "reason": record.reason,
        "traceback": record.traceback,
        "components": [_component_as_plain(component) for component in record.components],
    }


def _component_as_plain(component: Component) -> dict[str, Any]:
    return {
        "kind": component.kind,
        "name": component.name,
        "summary": component.summary,
        "capabilities": sorted(component.capabilities),
    }


def _print_tables(registry: Registry) -> None:
    console = Console()
    table = Table(show_lines=True)
    for heading in ("plugin", "distribution", "status", "components"):
        table.add_column(heading, overflow="fold")
    for record in registry.plugins:
        status = f"[{_COLOURS[record.status]}]{record.status}[/]"
        table.add_row(
            escape(record.entry_point),
            escape(f"{record.distribution} {record.version}"),
            f"{status}: {escape(record.reason)}" if record.reason else status,
            escape("\n".join(_line(component) for component in record.components)),
        )
    console.print(table)
    for (kind, name), records in registry.conflicts.items():
        origins = " and ".join(record.origin for record in records)
        console.print(escape(f"conflict: {kind} {name!r} is offered by {origins}"))
    for record in registry.plugins:
        if record.traceback:
            console.print(escape(f"\n{record.origin}:\n{record.traceback.rstrip()}"))


def _line(component: Component) -> str:
    name = f"{component.kind} {component.name}"
    return f"{name}: {component.summary}" if component.summary else name
