"""Error texts for components and kinds that cannot be had."""

from collections.abc import Sequence

from enginecore.registry.component_rules import UnknownKindError
from enginecore.registry.record import PluginRecord
from enginecore.registry.spelling import closest


def explain_absence(kind: str, name: str, plugins: Sequence[PluginRecord]) -> str:
    """Text for a component that no active plugin offers: names offered, and plugins left out."""
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
    """Whether a failed plugin may have offered the component: its names hint at that."""
    only_failed = [other for other in left_out if other.status == "failed"] == [record]
    names = _folded(f"{record.entry_point} {record.module} {record.distribution}")
    return only_failed or _folded(name) in names


def _folded(text: str) -> str:
    return text.lower().replace("_", "-")


def explain_unknown_kind(error: UnknownKindError, left_out: Sequence[PluginRecord]) -> str:
    """The error, and the plugins that would bring the kind, or may, if they were not left out."""
    bringing = [record for record in left_out if any(kind.name == error.kind for kind in record.kinds)]
    suspects = bringing or [record for record in left_out if record.status == "failed" and not record.kinds]
    if not suspects:
        return str(error)
    ending = "" if str(error).endswith("?") else "."
    comes = "It comes from" if bringing else "It may come from"
    return f"{error}{ending} {comes} {'; '.join(map(_left_out, suspects))}"


def _left_out(record: PluginRecord) -> str:
    status = "failed" if record.status == "failed" else "is blocked"
    return f"{record.origin}, which {status}: {record.reason}"


def explain_duplicates(kind: str, name: str, records: Sequence[PluginRecord]) -> str:
    """Text for a component that several plugins offer: which, and how to choose."""
    origins = " and ".join(record.origin for record in records)
    return f"{kind} {name!r} is offered by {origins}; leave one out with plugins.block, or uninstall it"
