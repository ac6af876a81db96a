"""The commands of the engine itself. Those of plugins come by the hook `enginecore_commands`."""

from enginecore.plugin import Command

COMMANDS = (
    Command(
        name="generate",
        target="enginecore.cli.generate:generate",
        summary="Complete prompts.",
    ),
    Command(
        name="chat",
        target="enginecore.cli.chat:chat",
        summary="Talk with a model, turn by turn.",
    ),
    Command(
        name="plugins",
        target="enginecore.cli.plugins:plugins",
        summary="List plugins, their components and commands.",
    ),
    Command(
        name="config",
        target="enginecore.cli.config:config",
        summary="Show the effective settings with where each value came from.",
    ),
)
"""In the order in which they are listed. No plugin can take their names."""
