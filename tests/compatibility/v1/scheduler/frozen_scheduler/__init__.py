"""A whole scheduler from scratch, with nothing of `enginecore.scheduling`."""

from pydantic import Field

from enginecore.interfaces import Scheduler
from enginecore.plugin import Component, ComponentSettings, SchedulerContext, hookimpl


class FrozenSchedulerSettings(ComponentSettings):
    """Table `[scheduler.frozen-scheduler]`."""

    reserved_blocks: int = Field(default=0, ge=0, description="KV blocks that an admission leaves free.")


def make_scheduler(settings: FrozenSchedulerSettings, context: SchedulerContext) -> Scheduler:
    from frozen_scheduler.scheduler import FrozenScheduler

    return FrozenScheduler(context, settings.reserved_blocks)


COMPONENT = Component(
    kind="scheduler",
    name="frozen-scheduler",
    factory=make_scheduler,
    settings=FrozenSchedulerSettings,
    capabilities=frozenset({"batch_queue", "chunked_prefill", "prefix_caching"}),
    summary="First come, first served, written from scratch.",
)


@hookimpl
def enginecore_components() -> list[Component]:
    return [COMPONENT]
