"""What an error says to somebody who asked for a component that he cannot have."""

from collections.abc import Sequence

from enginecore.registry.record import PluginRecord
from enginecore.registry.spelling import closest


def explain_absence(kind: str, name: str, plugins: Sequence[PluginRecord]) -> str:
    """Nobody offers it: what is offered, what is spelt alike, and what is left out, with the likeliest traceback."""
    active = [record for record in plugins if record.status == "active"]
    offered = sorted({c.name for record in active for c in record.components if c.kind == kind})
    lines = [f"no active plugin offers {kind} {name!r}{closest(name, offered)}"]
    lines.append(f"  offered: {', '.join(offered) or 'none'}")
    left_out = [record for record in plugins if record.status != "active"]
    lines += [f"  {record.status}: {record.origin}: {record.reason}" for record in left_out]
    for record in left_out:
        if record.traceback and _is_suspect(record, name, left_out):
            lines.append(f"traceback of {record.origin}:\n{record.traceback.rstrip()}")
    return "\n".join(lines)


def _is_suspect(record: PluginRecord, name: str, left_out: Sequence[PluginRecord]) -> bool:
    """What a failed plugin would have offered is not known; its names hint at it."""
    only_failed = [other for other in left_out if other.status == "failed"] == [record]
    names = _folded(f"{record.entry_point} {record.module} {record.distribution}")
    return only_failed or _folded(name) in names


def _folded(text: str) -> str:
    return text.lower().replace("_", "-")


def explain_duplicates(kind: str, name: str, records: Sequence[PluginRecord]) -> str:
    """Several offer it: who, and how to choose."""
    origins = " and ".join(record.origin for record in records)
    return f"{kind} {name!r} is offered by {origins}; leave one out with plugins.block, or uninstall it"
