"""Rules that a command must satisfy, whatever plugin offers it."""

import re
from collections.abc import Iterable

from enginecore.commands import COMMANDS
from enginecore.errors import PluginError
from enginecore.plugin import Command

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_TARGET = re.compile(r"\w+(\.\w+)*:\w+")
_OWN = frozenset(command.name for command in COMMANDS)


def check_commands(commands: Iterable[Command]) -> None:
    """Check the commands of one plugin, without importing them. No two may have one name.

    Raises:
        PluginError: what is wrong, and what would be right.
    """
    seen: set[str] = set()
    for command in commands:
        _check_command(command)
        if command.name in seen:
            raise PluginError(f"it offers command {command.name!r} twice")
        seen.add(command.name)


def _check_command(command: Command) -> None:
    if not isinstance(command.name, str) or not _NAME.fullmatch(command.name):
        raise PluginError(f"a command has the name {command.name!r}; a name is lower-case words joined by single '-'")
    what = f"command {command.name!r}"
    if command.name in _OWN:
        raise PluginError(f"{what} is the engine's own: choose another name")
    if not isinstance(command.target, str) or not _TARGET.fullmatch(command.target):
        raise PluginError(f"{what}: target must be 'module:attribute', not {command.target!r}")
    if not isinstance(command.summary, str) or not command.summary or "\n" in command.summary:
        raise PluginError(f"{what}: summary must be one line of text, not {command.summary!r}")
