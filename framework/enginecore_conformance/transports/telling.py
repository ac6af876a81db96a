"""A scheduler whose errors report the requests that it was given."""

from typing import Any

import msgspec

from enginecore.kinds import SCHEDULER
from enginecore.messages import FinishReason
from enginecore.plugin import Component, ComponentSettings, SchedulerContext
from enginecore.request import Request
from enginecore.scheduling import ContinuousBatchingScheduler, Rank, RequestView, SchedulerView, SchedulingPolicy

TELL = "tell-"
"""Requests whose ids begin so are not run: their error is what the scheduler was given."""

FIELDS = (
    "token_ids", "params", "arrival_time", "client_index", "priority", "tenant", "deadline", "cache_salt", "adapter",
    "hints", "skip_prefix_cache",
)  # fmt: skip


class InOrder(SchedulingPolicy):
    """First come, first served."""

    def rank(self, request: RequestView, scheduler: SchedulerView) -> Rank:
        return request.seq


class TellingScheduler(ContinuousBatchingScheduler):
    """Ends certain requests by an error that says all that it knows of them."""

    def add_request(self, request: Request) -> None:
        super().add_request(request)
        if request.request_id.startswith(TELL):
            self.finish_requests([request.request_id], FinishReason.ERROR, told(request))


def told(request: Request) -> str:
    """The request that a scheduler got, as JSON."""
    known: dict[str, Any] = {name: getattr(request, name) for name in FIELDS}
    known["params"] = msgspec.structs.asdict(request.params)
    return msgspec.json.encode(known, order="sorted").decode()


def _make(settings: ComponentSettings, context: SchedulerContext) -> TellingScheduler:
    return TellingScheduler(InOrder(), context)


TELLING = Component(
    kind="scheduler",
    name="telling",
    factory=_make,
    capabilities=frozenset(SCHEDULER.capabilities),
    summary="Reports the settings and context it was built with, for checks.",
)
