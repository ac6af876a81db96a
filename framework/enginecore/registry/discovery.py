"""Discovery of plugins, and the decision which of them may be imported."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, distribution, distributions
from typing import Any, NamedTuple

from enginecore.errors import ConfigurationError
from enginecore.plugin import ENTRY_POINT_GROUP, PLUGIN_API
from enginecore.registry.record import PluginRecord, Status, normalised
from enginecore.registry.spelling import closest

_GROUPS = ENTRY_POINT_GROUP.removesuffix(str(PLUGIN_API))
_ANY_VERSION = re.compile(re.escape(_GROUPS) + r"\d+")


@dataclass(frozen=True, slots=True)
class DiscoveryOptions:
    """Which plugins may be imported, and what they may not claim.

    Attributes:
        allow: Entry points or distributions; only these. None: all.
        block: Entry points or distributions; not these.
        reserved: Names that no settings table of a plugin's kind may have.
    """

    allow: tuple[str, ...] | None = None
    block: tuple[str, ...] = ()
    reserved: frozenset[str] = frozenset()

    def to_plain(self) -> dict[str, Any]:
        """Plain JSON-able data, which `from_plain` reads."""
        allow = None if self.allow is None else list(self.allow)
        return {"allow": allow, "block": list(self.block), "reserved": sorted(self.reserved)}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "DiscoveryOptions":
        """The options on which `to_plain` was called."""
        allow = None if plain["allow"] is None else tuple(plain["allow"])
        return cls(allow, tuple(plain["block"]), frozenset(plain["reserved"]))


class Candidate(NamedTuple):
    """An entry point before it is imported."""

    entry_point: EntryPoint
    distribution: str
    version: str

    @property
    def key(self) -> str:
        """Unique among candidates."""
        return f"{self.entry_point.name} ({self.distribution})"

    @property
    def is_bundled(self) -> bool:
        """Whether it comes with enginecore itself."""
        return self.record("active").is_bundled

    def matches(self, names: Iterable[str]) -> bool:
        """Whether one of `names` is its entry point's or its distribution's name."""
        own = {normalised(self.entry_point.name), normalised(self.distribution)}
        return any(normalised(name) in own for name in names)

    def record(self, status: Status, reason: str = "", **more: Any) -> PluginRecord:
        """The plugin's record; `more` are further attributes of it."""
        return PluginRecord(
            entry_point=self.entry_point.name,
            module=self.entry_point.value,
            distribution=self.distribution,
            version=self.version,
            status=status,
            reason=reason,
            **more,
        )


def find_candidates() -> tuple[list[Candidate], list[PluginRecord]]:
    """All plugins on the path, in a fixed order, and records of distributions that cannot be read.

    A distribution that is on the path twice counts once, as the first: that is the one that Python
    imports.
    """
    candidates: dict[tuple[str, str], Candidate] = {}
    unreadable: list[PluginRecord] = []
    for installed in distributions():
        try:
            for candidate in _candidates_of(installed):
                candidates.setdefault((normalised(candidate.distribution), candidate.entry_point.name), candidate)
        except Exception as error:
            # what a damaged dist-info raises depends on where it is damaged and on the version of Python
            unreadable.append(_unreadable(installed, error))
    return sorted(candidates.values(), key=lambda c: (not c.is_bundled, c.key)), unreadable


def _candidates_of(installed: Distribution) -> Iterator[Candidate]:
    if _GROUPS not in (installed.read_text("entry_points.txt") or ""):
        return
    found = [point for point in installed.entry_points if _ANY_VERSION.fullmatch(point.group)]
    current = {point.name for point in found if point.group == ENTRY_POINT_GROUP}
    if not found or _is_shadowed(installed):
        return
    for point in found:
        # a plugin may serve several versions of the interface at once
        if point.group == ENTRY_POINT_GROUP or point.name not in current:
            yield Candidate(point, installed.metadata["Name"], installed.version)


def _is_shadowed(installed: Distribution) -> bool:
    first = distribution(installed.metadata["Name"])
    return (first.locate_file(""), first.version) != (installed.locate_file(""), installed.version)


def _unreadable(installed: Distribution, error: Exception) -> PluginRecord:
    return PluginRecord(
        entry_point="?",
        module="?",
        distribution=str(installed.locate_file("")),
        version="?",
        status="failed",
        reason=f"the metadata of a distribution there cannot be read: {type(error).__name__}: {error}",
    )


def refusal(candidate: Candidate, options: DiscoveryOptions) -> PluginRecord | None:
    """The record of a plugin that must not be imported; None if it may."""
    if candidate.matches(options.block):
        return candidate.record("blocked", "plugins.block names it")
    if options.allow is not None and not candidate.matches(options.allow):
        return candidate.record("blocked", "plugins.allow does not name it")
    if candidate.entry_point.group != ENTRY_POINT_GROUP:
        needed = candidate.entry_point.group.removeprefix(_GROUPS)
        return candidate.record("failed", f"it needs plugin interface v{needed}; this enginecore has v{PLUGIN_API}")
    return None


def check_names(key: str, names: Iterable[str], candidates: Sequence[Candidate]) -> None:
    """Refuse a list that names a plugin which is not installed.

    Raises:
        ConfigurationError: names `key`, what was not found, and what was.
    """
    for name in names:
        if any(candidate.matches([name]) for candidate in candidates):
            continue
        known = sorted({word for c in candidates for word in (c.entry_point.name, c.distribution)})
        found = ", ".join(candidate.key for candidate in candidates) or "none"
        raise ConfigurationError(
            f"{key} names {name!r}, which is no installed plugin or distribution{closest(name, known)}\n"
            f"  found, as entry point (distribution): {found}"
        )
