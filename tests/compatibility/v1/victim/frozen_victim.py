"""The request that arrived first gives way."""

from collections.abc import Sequence

from enginecore.interfaces import RequestView, SchedulerView, VictimChoice
from enginecore.plugin import Component, ComponentSettings, VictimContext, hookimpl


class FrozenVictim(VictimChoice):
    def choose(self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView) -> RequestView:
        return min(candidates, key=lambda request: request.seq)


def make_victim(settings: ComponentSettings, context: VictimContext) -> VictimChoice:
    return FrozenVictim()


COMPONENT = Component(kind="victim", name="frozen-victim", factory=make_victim, summary="The oldest gives way.")


@hookimpl
def enginecore_components() -> list[Component]:
    return [COMPONENT]
