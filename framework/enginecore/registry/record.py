"""The record of one plugin, loaded or not."""

import re
from dataclasses import dataclass
from typing import Literal

from enginecore.plugin import Command, Component, KindSpec

_OWN_DISTRIBUTION = "enginecore"

Status = Literal["active", "blocked", "failed"]


def normalised(name: str) -> str:
    """A name as package indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRecord:
    """One plugin that was found. A plugin that is left out keeps its record: it never vanishes.

    Attributes:
        entry_point: Name in the entry-point group; "components" for components given as
            objects.
        module: Module that the entry point names.
        distribution: The installed distribution that declares it; "argument" for components given
            as objects.
        version: Version of the distribution.
        status: "active"; "blocked" (left out on purpose); "failed" (left out because it is broken).
        reason: Why it is not active, in a sentence.
        traceback: Traceback of the exception that it raised, if one is the reason.
        components: All that it offers if active. A plugin that is blocked because it opens a
            network surface lists what it would offer.
        kinds: Kinds that it declares, as far as they were found out. They count only if it is
            active.
        commands: Likewise the commands that it offers.
    """

    entry_point: str
    module: str
    distribution: str
    version: str
    status: Status
    reason: str = ""
    traceback: str = ""
    components: tuple[Component, ...] = ()
    kinds: tuple[KindSpec, ...] = ()
    commands: tuple[Command, ...] = ()

    @property
    def is_bundled(self) -> bool:
        """Whether it comes with enginecore itself."""
        return normalised(self.distribution) == _OWN_DISTRIBUTION

    @property
    def origin(self) -> str:
        """The plugin and its distribution, for messages."""
        if self.distribution == "argument":
            return "the components given as an argument"
        return f"plugin {self.entry_point!r} of distribution {self.distribution} {self.version}".rstrip()
