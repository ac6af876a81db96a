"""The commands that plugins bring."""

from collections.abc import Iterator

from enginecore.commands import COMMANDS
from enginecore.errors import ConfigurationError
from enginecore.plugin import Command
from enginecore.registry import PluginRecord, Registry
from enginecore.registry.spelling import closest
from enginecore.settings import load_registry


class PluginCommands:
    """Commands of the plugins of one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    @classmethod
    def discover(cls) -> "PluginCommands":
        """Discover the commands of the plugins that the environment allows.

        Raises:
            ConfigurationError: a variable of the environment is wrong.
        """
        return cls(load_registry())

    def listed(self) -> Iterator[tuple[str, Command]]:
        """Each name once, with the heading under which it is listed: its plugin."""
        for name, offers in self._offers().items():
            record, command = offers[0]
            if len(offers) > 1:
                origins = " and ".join(other.entry_point for other, _ in offers)
                command = Command(name=name, target=command.target, summary=f"Offered by {origins}: leave one out.")
            yield f"Commands of {record.entry_point}", command

    def find(self, name: str) -> tuple[Command, str]:
        """The command of this name, and the plugin that it comes from.

        Raises:
            ConfigurationError: no active plugin offers it: names what is close, or the plugins that
                may have brought it. Or several do: names them.
        """
        offers = self._offers().get(name, [])
        if len(offers) > 1:
            origins = " and ".join(record.origin for record, _ in offers)
            raise ConfigurationError(
                f"command {name!r} is offered by {origins}; leave one out with plugins.block, or uninstall it"
            )
        if not offers:
            raise ConfigurationError(self._explain_absence(name))
        [(record, command)] = offers
        return command, record.origin

    def _offers(self) -> dict[str, list[tuple[PluginRecord, Command]]]:
        offers: dict[str, list[tuple[PluginRecord, Command]]] = {}
        for record in self._registry.plugins:
            for command in record.commands if record.status == "active" else ():
                offers.setdefault(command.name, []).append((record, command))
        return offers

    def _explain_absence(self, name: str) -> str:
        left_out = [record for record in self._registry.plugins if record.status != "active"]
        bringing = [record for record in left_out if name in {command.name for command in record.commands}]
        names = [*(command.name for command in COMMANDS), *self._offers()]
        hint = closest(name, names) or f"; the commands are {', '.join(names)}"
        head = f"there is no command {name!r}{'' if bringing else hint}"
        suspects = bringing or [record for record in left_out if not record.commands]
        would = "would bring it" if bringing else "may bring it"
        lines = [f"  {would}, but {record.status}: {record.origin}: {record.reason}" for record in suspects]
        return "\n".join([head, *lines])
