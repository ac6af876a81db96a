"""A plugin whose import is heavy: it takes a tensor library along before anybody asks for its scheduler."""

import torch

from enginecore.kinds import SCHEDULER
from enginecore.plugin import Component, ComponentSettings, SchedulerContext
from enginecore.scheduling import ContinuousBatchingScheduler
from enginecore_schedulers.fcfs import Fcfs


def _make(settings: ComponentSettings, context: SchedulerContext) -> ContinuousBatchingScheduler:
    torch.empty(1)
    return ContinuousBatchingScheduler(Fcfs(), context)


COMPONENT = Component(
    kind="scheduler",
    name="imports_torch_at_load",
    factory=_make,
    capabilities=frozenset(SCHEDULER.capabilities),
    summary="The module of its factory imports torch.",
)
