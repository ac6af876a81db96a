"""CheckedScheduler: judges each plan and verifies the books after every step, for `debug.check_invariants`."""

from typing import Any

from enginecore.contracts.plans import KnownRequest, PlanJudge, PlanLimits
from enginecore.interfaces import Outputs, Scheduler
from enginecore.messages import ModelRunnerOutput, SchedulerOutput
from enginecore.plugin import SchedulerContext


class CheckedScheduler:
    """A scheduler whose plans are judged, and whose `check_invariants` is called around every step.

    Args:
        scheduler: The scheduler inside.
        context: The context that it was made with.
    """

    def __init__(self, scheduler: Scheduler, context: SchedulerContext) -> None:
        self._scheduler = scheduler
        self._judge = PlanJudge(PlanLimits.of(context), KnownRequest.of)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)

    def schedule(self) -> SchedulerOutput:
        plan = self._scheduler.schedule()
        self._judge.read(plan)
        self._scheduler.check_invariants()
        return plan

    def update_from_output(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> Outputs:
        outputs = self._scheduler.update_from_output(scheduled, output)
        self._scheduler.check_invariants()
        return outputs
