"""The command `enginecore plugins`: components by kind, commands, and the state of plugins."""

import json
from typing import Annotated

import typer

from enginecore.cli.options import AsJson, ConfigFile, Overrides
from enginecore.cli.plugin_listing import as_plain, print_kind, print_listing
from enginecore.errors import ConfigurationError
from enginecore.registry.spelling import closest
from enginecore.settings import load_registry, parse_overrides


def plugins(
    kind: Annotated[str | None, typer.Argument(help="List this kind of component alone, such as metric.")] = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a plugin failed.")] = False,
) -> None:
    """List components by kind, commands, and plugins with their status.

    Kinds with very many components are listed by name: name such a kind to see the summaries. --json
    always holds everything. Exits with 0 even if some plugins failed, unless --strict is given.
    """
    registry = load_registry(parse_overrides(overrides or ()), config_file=config)
    if kind is not None and kind not in registry.kinds:
        hint = closest(kind, registry.kinds) or f"; the kinds are {', '.join(registry.kinds)}"
        raise ConfigurationError(f"there is no kind of component {kind!r}{hint}")
    if as_json:
        typer.echo(json.dumps(as_plain(registry), indent=2))
    elif kind is not None:
        print_kind(registry, registry.kinds[kind])
    else:
        print_listing(registry)
    if strict and registry.failed:
        raise typer.Exit(1)
