"""Rules that the row of a kind must satisfy, by itself and beside other rows."""

import re
from collections.abc import Collection, Iterable, Mapping
from keyword import iskeyword

from enginecore.errors import PluginError
from enginecore.kinds import KINDS
from enginecore.plugin import KindSpec
from enginecore.registry.component_rules import COMPONENT_NAME, RESERVED_WORDS
from enginecore.registry.spelling import closest

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_KIT = re.compile(r"\w+(\.\w+)*(:\w+)?")


def check_kinds(kinds: Iterable[KindSpec], reserved: Collection[str]) -> None:
    """Check the rows of one plugin, each by itself and beside the engine's own.

    Args:
        kinds: The rows.
        reserved: Names that no settings table may have: those of the engine's settings.

    Raises:
        PluginError: what is wrong, and what would be right.
    """
    names = {kind.name for kind in KINDS}
    tables = {kind.table for kind in KINDS if kind.table is not None}
    for kind in kinds:
        _check_row(kind)
        if kind.name in names:
            raise PluginError(f"kind {kind.name!r} is declared twice, or is the engine's own: choose another name")
        if kind.table in tables:
            raise PluginError(f"kind {kind.name!r}: another kind has the settings table {kind.table!r}")
        if kind.table is not None:
            _check_table(kind.name, kind.table, reserved)
            tables.add(kind.table)
        names.add(kind.name)


def check_part_of(kind: KindSpec, kinds: Mapping[str, KindSpec]) -> None:
    """Check that the kind whose part this one is exists, and stands by itself.

    Raises:
        PluginError: it does not.
    """
    if kind.part_of is None:
        return
    if kind.part_of not in kinds:
        hint = closest(kind.part_of, kinds) or f"; the kinds are {', '.join(kinds)}"
        raise PluginError(f"kind {kind.name!r} is part of the unknown kind {kind.part_of!r}{hint}")
    if (whole := kinds[kind.part_of].part_of) is not None:
        raise PluginError(
            f"kind {kind.name!r} cannot be part of {kind.part_of!r}, which is itself part of {whole!r}: parts have "
            "no parts"
        )


def find_rivals(kind: KindSpec, others: Iterable[KindSpec]) -> str:
    """Claims that other rows share, as the beginning of a sentence; empty if there are none."""
    for other in others:
        if other.name == kind.name:
            return f"kind {kind.name!r} is declared"
        if kind.table is not None and other.table == kind.table:
            return f"the settings table {kind.table!r} of kind {kind.name!r} is declared"
    return ""


def _check_row(kind: KindSpec) -> None:
    if not isinstance(kind.name, str) or not _NAME.fullmatch(kind.name) or iskeyword(kind.name):
        raise PluginError(f"a kind has the name {kind.name!r}; a name is lower-case words joined by single '_'")
    what = f"kind {kind.name!r}"
    if kind.name in RESERVED_WORDS:
        raise PluginError(f"{what}: this name is reserved, choose another one")
    if not isinstance(kind.summary, str) or not kind.summary or "\n" in kind.summary:
        raise PluginError(f"{what}: summary must be one line of text, not {kind.summary!r}")
    if not isinstance(kind.interface, type):
        raise PluginError(f"{what}: interface must be a class, not {kind.interface!r}")
    if not (kind.context is None or isinstance(kind.context, type)):
        raise PluginError(f"{what}: context must be a class or None, not {kind.context!r}")
    if not isinstance(kind.opens_network, bool):
        raise PluginError(f"{what}: opens_network must be True or False, not {kind.opens_network!r}")
    if not (kind.kit is None or (isinstance(kind.kit, str) and _KIT.fullmatch(kind.kit))):
        raise PluginError(f"{what}: kit must be 'module' or 'module:NAME', not {kind.kit!r}")
    _check_capabilities(what, kind)
    _check_choice(what, kind)


def _check_capabilities(what: str, kind: KindSpec) -> None:
    words = kind.capabilities
    if not isinstance(words, Mapping) or not all(isinstance(text, str) for pair in words.items() for text in pair):
        raise PluginError(f"{what}: capabilities must be a dict of words and their meanings, not {words!r}")


def _check_choice(what: str, kind: KindSpec) -> None:
    """How a component of the kind is chosen by settings."""
    if not (kind.table is None or (isinstance(kind.table, str) and _NAME.fullmatch(kind.table))):
        raise PluginError(f"{what} has the settings table {kind.table!r}; a table is lower-case words joined by '_'")
    if kind.table is None and (kind.default, kind.part_of) != (None, None):
        raise PluginError(f"{what}: default and part_of are about its settings table, and it has none")
    if not (kind.default is None or (isinstance(kind.default, str) and COMPONENT_NAME.fullmatch(kind.default))):
        raise PluginError(f"{what}: default must be the name of a component or None, not {kind.default!r}")
    if not (kind.part_of is None or isinstance(kind.part_of, str)):
        raise PluginError(f"{what}: part_of must be the name of a kind or None, not {kind.part_of!r}")


def _check_table(name: str, table: str, reserved: Collection[str]) -> None:
    if table in reserved or table in RESERVED_WORDS or iskeyword(table):
        raise PluginError(f"kind {name!r}: its settings table {table!r} is a setting of the engine: choose another one")
    if closest(table, ["plugins"]):
        raise PluginError(f"kind {name!r}: its settings table {table!r} reads like 'plugins': choose another one")
