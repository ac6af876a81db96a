"""`plain-fcfs`, a whole scheduler for enginecore, from scratch: nothing of `enginecore.scheduling` is used.

Whoever only wants another order of requests writes a policy, in twenty lines. This is for those who want another
mechanism: all that a scheduler owes the engine core, as short as it can be.
"""

from pydantic import Field

from enginecore.interfaces import Scheduler
from enginecore.plugin import Component, ComponentSettings, SchedulerContext, hookimpl


class PlainFcfsSettings(ComponentSettings):
    """Table `[scheduler.plain-fcfs]`."""

    reserved_blocks: int = Field(
        default=0, ge=0, description="KV blocks that an admission leaves free, so that those who run can grow."
    )


def make_plain_fcfs(settings: PlainFcfsSettings, context: SchedulerContext) -> Scheduler:
    """Called when an engine is built that uses it. Imports what a mere list of plugins does not need."""
    from plain_fcfs.scheduler import PlainFcfsScheduler

    return PlainFcfsScheduler(context, settings.reserved_blocks)


COMPONENT = Component(
    kind="scheduler",
    name="plain-fcfs",
    factory=make_plain_fcfs,
    settings=PlainFcfsSettings,
    capabilities=frozenset({"batch_queue", "chunked_prefill", "prefix_caching"}),
    summary="First come, first served, written from scratch.",
)


@hookimpl
def enginecore_components() -> list[Component]:
    """What this package offers."""
    return [COMPONENT]
