"""Plugins and what they bring, for people and as plain data."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from enginecore.plugin import Command, Component, KindSpec
from enginecore.registry import PluginRecord, Registry

_COLOURS = {"active": "green", "blocked": "yellow", "failed": "red"}

_PLUGINS = "[bold]plugins[/]"
_ONE_LINE: Mapping[str, Any] = {"no_wrap": True, "overflow": "ellipsis"}
_MAX_DESCRIBED = 24
"""Kinds with more components are listed by the names of these alone."""

# -- plain data ----------------------------------------------------------------------------------------


def as_plain(registry: Registry) -> dict[str, Any]:
    """All that is known, JSON-able."""
    return {
        "plugins": [_plain_record(record) for record in registry.plugins],
        "kinds": [_plain_kind(kind) for kind in registry.kinds.values()],
        "conflicts": [
            {"kind": kind, "name": name, "offered_by": [record.origin for record in records]}
            for (kind, name), records in registry.conflicts.items()
        ],
    }


def _plain_record(record: PluginRecord) -> dict[str, Any]:
    return {
        "entry_point": record.entry_point,
        "module": record.module,
        "distribution": record.distribution,
        "version": record.version,
        "status": record.status,
        "reason": record.reason,
        "traceback": record.traceback,
        "components": [_plain_component(component) for component in record.components],
        "kinds": [kind.name for kind in record.kinds],
        "commands": [_plain_command(command) for command in record.commands],
    }


def _plain_component(component: Component) -> dict[str, Any]:
    return {
        "kind": component.kind,
        "name": component.name,
        "summary": component.summary,
        "capabilities": sorted(component.capabilities),
    }


def _plain_command(command: Command) -> dict[str, str]:
    return {"name": command.name, "target": command.target, "summary": command.summary}


def _plain_kind(kind: KindSpec) -> dict[str, Any]:
    return {
        "name": kind.name,
        "summary": kind.summary,
        "interface": f"{kind.interface.__module__}:{kind.interface.__qualname__}",
        "table": kind.table,
        "default": kind.default,
        "capabilities": dict(kind.capabilities),
        "part_of": kind.part_of,
        "kit": kind.kit,
        "opens_network": kind.opens_network,
    }


# -- text ------------------------------------------------------------------------------------------------


def print_listing(registry: Registry) -> None:
    """Print the components under the heading of their kind, then commands and plugins.

    A component has one line, and long summaries are cut at the width of the terminal. Kinds with
    very many components have the names alone.
    """
    console = Console(highlight=False)
    for heading, rows in _sections(registry).items():
        console.print(heading, **_ONE_LINE)
        if heading != _PLUGINS and len(rows) > _MAX_DESCRIBED:
            names = textwrap.fill(", ".join(name for name, _ in rows), console.width - 2, break_on_hyphens=False)
            console.print(escape(textwrap.indent(names, "  ")))
        else:
            _print_rows(console, rows, {} if heading == _PLUGINS else _ONE_LINE)
    for (kind, name), records in registry.conflicts.items():
        origins = " and ".join(record.origin for record in records)
        console.print(escape(f"conflict: {kind} {name!r} is offered by {origins}"))
    for record in registry.plugins:
        if record.traceback:
            console.print(escape(f"\n{record.origin}:\n{record.traceback.rstrip()}"))


def print_kind(registry: Registry, kind: KindSpec) -> None:
    """Print the components of one kind, with their whole summaries."""
    console = Console(highlight=False)
    console.print(_heading(kind))
    _print_rows(console, _component_rows(registry, kind), {})


def _print_rows(console: Console, rows: Sequence[tuple[str, str]], how: Mapping[str, Any]) -> None:
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        console.print(f"  {escape(name.ljust(width))}  {text}", **how)


def _sections(registry: Registry) -> Mapping[str, Sequence[tuple[str, str]]]:
    """Rows of a name and a text by heading. Headings and texts are markup."""
    sections = {_heading(kind): _component_rows(registry, kind) for kind in registry.kinds.values()}
    sections["[bold]commands[/]  Of plugins; `enginecore --help` lists all."] = [
        (command.name, _text(command.summary, record)) for record in _active(registry) for command in record.commands
    ]
    sections[_PLUGINS] = [(record.entry_point, _status(record)) for record in registry.plugins]
    return sections


def _heading(kind: KindSpec) -> str:
    return f"[bold]{kind.name}[/]  {escape(kind.summary)}"


def _component_rows(registry: Registry, kind: KindSpec) -> list[tuple[str, str]]:
    return [
        (component.name, _text(component.summary, record))
        for record in _active(registry)
        for component in record.components
        if component.kind == kind.name
    ]


def _active(registry: Registry) -> Iterator[PluginRecord]:
    return (record for record in registry.plugins if record.status == "active")


def _text(summary: str, record: PluginRecord) -> str:
    """A summary, after the distribution if that is not enginecore itself."""
    return escape(summary if record.is_bundled else f"({_version(record)}) {summary}")


def _status(record: PluginRecord) -> str:
    status = f"[{_COLOURS[record.status]}]{record.status}[/]"
    reason = f": {escape(record.reason)}" if record.reason else ""
    return f"{escape(_version(record))}  {status}{reason}"


def _version(record: PluginRecord) -> str:
    return f"{record.distribution} {record.version}".rstrip()
