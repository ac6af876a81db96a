"""ReportingScheduler: hands records of steps and requests to observers."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from enginecore.clock import Clock
from enginecore.interfaces import Outputs, RequestRecord, Scheduler, StepRecord
from enginecore.messages import FinishReason, ModelRunnerOutput, SchedulerOutput
from enginecore.request import Request

TellOfStep = Callable[[StepRecord], None]
TellOfRequest = Callable[[RequestRecord], None]


class ReportingScheduler:
    """A scheduler whose steps and requests are recorded for observers; made only where there are any.

    Args:
        scheduler: The scheduler inside.
        clock: The engine's.
        tell_of_step: Called with the record of each step that is settled, of those planned from now on.
        tell_of_request: Called with the record of each request that ends, of those added from now on.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        clock: Clock,
        *,
        tell_of_step: TellOfStep | None = None,
        tell_of_request: TellOfRequest | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._tell_of_step = tell_of_step
        self._tell_of_request = tell_of_request
        self._live: dict[str, Request] = {}
        self._in_flight: deque[tuple[int, float, int]] = deque()  # step, when it was scheduled, batches in flight

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)

    def add_request(self, request: Request) -> None:
        self._scheduler.add_request(request)
        if self._tell_of_request:
            self._live[request.request_id] = request

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        request_ids = list(request_ids)
        self._scheduler.abort_requests(request_ids)
        for request_id in request_ids:
            self._end(request_id, FinishReason.ABORT, None)

    def schedule(self) -> SchedulerOutput:
        started = self._clock.now()
        scheduled = self._scheduler.schedule()
        if self._tell_of_step and not scheduled.is_empty:
            self._in_flight.append((scheduled.step, started, len(self._in_flight) + 1))
        return scheduled

    def update_from_output(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> Outputs:
        outputs = self._scheduler.update_from_output(scheduled, output)
        if self._in_flight and self._in_flight[0][0] == scheduled.step:
            self._record_step(scheduled)
        self._record_ended(outputs)
        return outputs

    def take_outputs(self) -> Outputs:
        outputs = self._scheduler.take_outputs()
        self._record_ended(outputs)
        return outputs

    def _record_step(self, scheduled: SchedulerOutput) -> None:
        _, started, batches_in_flight = self._in_flight.popleft()
        if self._tell_of_step:
            record = StepRecord(
                step=scheduled.step,
                started=started,
                settled=self._clock.now(),
                num_requests=len(scheduled.num_scheduled_tokens),
                num_tokens=scheduled.total_num_scheduled_tokens,
                batches_in_flight=batches_in_flight,
                stats=self._scheduler.get_stats(),
                scheduled=scheduled,
            )
            self._tell_of_step(record)

    def _record_ended(self, outputs: Outputs) -> None:
        if self._live:
            for output in (output for due in outputs.values() for output in due):
                if output.finish_reason is not None:
                    self._end(output.request_id, output.finish_reason, output.error)

    def _end(self, request_id: str, reason: FinishReason, error: str | None) -> None:
        request = self._live.pop(request_id, None)
        if request is not None and self._tell_of_request:
            record = RequestRecord(
                request_id=request_id,
                finish_reason=reason,
                arrival_time=request.arrival_time,
                ended=self._clock.now(),
                num_prompt_tokens=request.num_prompt_tokens,
                num_output_tokens=request.num_output_tokens,
                num_cached_tokens=max(request.num_cached_tokens, 0),
                num_preemptions=request.num_preemptions,
                error=error,
            )
            self._tell_of_request(record)
