"""The command `enginecore`: one module per command, each with a function of its own name.

A command's module is imported when it is called for, so that one command never needs what another
one imports.
"""

import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module

import typer

from enginecore.cli.streams import drop_unwritable_output
from enginecore.errors import ConfigurationError, EngineCoreError

COMMANDS = {
    "generate": "enginecore.cli.generate",
    "chat": "enginecore.cli.chat",
    "plugins": "enginecore.cli.plugins",
    "config": "enginecore.cli.config",
    "check": "enginecore_conformance.commands.check",
    "new": "enginecore_conformance.commands.new",
    "replay": "enginecore_lab.commands.replay",
    "ab": "enginecore_lab.commands.ab",
    "capacity": "enginecore_lab.commands.capacity",
    "sweep": "enginecore_lab.commands.sweep",
    "calibrate": "enginecore_lab.commands.calibrate",
}


def build_app(commands: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with some of its commands, or all."""
    app = typer.Typer(
        name="enginecore", help="An LLM inference engine core whose every part is a plugin.", add_completion=False
    )
    app.callback(no_args_is_help=True)(_root)
    for name in commands:
        app.command(name)(getattr(import_module(COMMANDS[name]), name))
    return app


def _root() -> None:
    """Without it, typer would take an app of one command for that command."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 it succeeded, 1 it failed, 2 it was called or set up wrongly."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    wanted = [name for name in given[:1] if name in COMMANDS]
    try:
        build_app(wanted or COMMANDS)(args=given, prog_name="enginecore")
    except EngineCoreError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2 if isinstance(error, ConfigurationError) else 1)
    except OSError as error:  # such as a full disk under standard output
        with suppress(OSError):
            typer.echo(f"error: {error}", err=True)
        drop_unwritable_output()
        sys.exit(1)
