"""The command `enginecore plugins`: components by kind, commands, and the state of plugins."""

import json
from typing import Annotated

import typer

from enginecore.cli.options import AsJson, ConfigFile, Overrides
from enginecore.cli.plugin_listing import as_plain, print_listing
from enginecore.settings import load_registry, parse_overrides


def plugins(
    config: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a plugin failed.")] = False,
) -> None:
    """List components by kind, commands, and plugins with their status.

    Exits with 0 even if some plugins failed, unless --strict is given.
    """
    registry = load_registry(parse_overrides(overrides or ()), config_file=config)
    if as_json:
        typer.echo(json.dumps(as_plain(registry), indent=2))
    else:
        print_listing(registry)
    if strict and registry.failed:
        raise typer.Exit(1)
