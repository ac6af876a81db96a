"""The command `enginecore`: one module per command, with a function of its own name.

Commands of plugins come by the hook `enginecore_commands`. A command's module is imported when the
command is called, so that one command never needs what another one imports.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress

import typer

from enginecore.cli.app import build_app
from enginecore.cli.streams import drop_unwritable_output
from enginecore.errors import ConfigurationError, EngineCoreError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 it succeeded, 1 it failed, 2 it was called or set up wrongly."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        build_app(given)(args=given, prog_name="enginecore")
    except EngineCoreError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2 if isinstance(error, ConfigurationError) else 1)
    except OSError as error:  # such as a full disk under standard output
        with suppress(OSError):
            typer.echo(f"error: {error}", err=True)
        drop_unwritable_output()
        sys.exit(1)
