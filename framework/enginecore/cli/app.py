"""The command line as a Typer app: the engine's own commands, and those of plugins.

A command's module is imported when the command is called: the help of all commands comes from their
records.
"""

from collections.abc import Iterator, Sequence
from importlib import import_module

import typer

from enginecore.cli.plugin_commands import PluginCommands
from enginecore.commands import COMMANDS
from enginecore.errors import ConfigurationError, EngineCoreError
from enginecore.plugin import Command


def build_app(arguments: Sequence[str]) -> typer.Typer:
    """The app for these arguments: with the command that they call, or with a list of all commands.

    Plugins are discovered only if no command of the engine's own is called.

    Raises:
        ConfigurationError: there is no such command, several plugins offer it, or it cannot be
            imported; says why.
    """
    name = arguments[0] if arguments else ""
    own = {command.name: command for command in COMMANDS}
    if name in own:
        return _app_of(own[name], "enginecore")
    if not name or name.startswith("-"):
        return _listing()
    plugins = PluginCommands.discover()
    command, origin = plugins.find(name)
    return _app_of(command, origin)


def _new_app() -> typer.Typer:
    app = typer.Typer(
        name="enginecore", help="An LLM inference engine core whose every part is a plugin.", add_completion=False
    )
    app.callback(no_args_is_help=True)(_root)
    return app


def _root() -> None:
    """Without it, typer would take an app of one command for that command."""


def _app_of(command: Command, origin: str) -> typer.Typer:
    """An app with this command alone.

    Raises:
        ConfigurationError: it cannot be imported, or is nothing that Typer can make a command of.
    """
    app = _new_app()
    module, _, attribute = command.target.partition(":")
    try:
        target = getattr(import_module(module), attribute)
        if isinstance(target, typer.Typer):
            app.add_typer(target, name=command.name, help=command.summary)
        else:
            app.command(command.name)(target)
        typer.main.get_command(app)
    except (KeyboardInterrupt, EngineCoreError):
        raise
    except BaseException as error:  # a module of a plugin may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise ConfigurationError(f"command {command.name!r} of {origin} cannot be run: {reason}") from error
    return app


def _listing() -> typer.Typer:
    """An app that lists all commands and runs none."""
    app = _new_app()
    for panel, command in _all_commands():
        app.command(command.name, help=command.summary, rich_help_panel=panel)(_misplaced)
    return app


def _misplaced() -> None:
    raise ConfigurationError("the command comes first: enginecore COMMAND, then its options")


def _all_commands() -> Iterator[tuple[str, Command]]:
    """Commands under the headings that they are listed under."""
    for command in COMMANDS:
        yield "Commands", command
    try:
        plugins = PluginCommands.discover()
    except EngineCoreError as error:  # such as a misspelt variable: help must help nevertheless
        typer.echo(f"error: {error}\ncommands of plugins are not listed", err=True)
        return
    yield from plugins.listed()
