"""Tells observers of steps and requests. Costs nothing where nobody listens."""

from collections.abc import Callable, Iterable, Mapping

from enginecore.clock import Clock
from enginecore.interfaces import Observer, RequestRecord, Scheduler, StepRecord
from enginecore.messages import EngineCoreOutput, FinishReason, SchedulerOutput
from enginecore.registry import Observers
from enginecore.request import Request


class Reporter:
    """Builds the records that observers get: those of plugins, whose failures change nothing, and the caller's own."""

    def __init__(self, observers: Observers, scheduler: Scheduler, clock: Clock) -> None:
        self._tell_of_step: list[Callable[[StepRecord], None]] = []
        self._tell_of_request: list[Callable[[RequestRecord], None]] = []
        if observers.has_step_observers:
            self._tell_of_step.append(observers.step_finished)
        if observers.has_request_observers:
            self._tell_of_request.append(observers.request_finished)
        self._scheduler = scheduler
        self._clock = clock
        self._live: dict[str, Request] = {}

    def add(self, observer: Observer) -> None:
        """Tell this one too, from now on."""
        self._tell_of_step.append(observer.step_finished)
        self._tell_of_request.append(observer.request_finished)

    def added(self, request: Request) -> None:
        """A request was handed to the scheduler."""
        if self._tell_of_request:
            self._live[request.request_id] = request

    def step_settled(self, scheduled: SchedulerOutput, started: float, batches_in_flight: int) -> None:
        """A step was settled."""
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
            for tell in self._tell_of_step:
                tell(record)

    def emitted(self, outputs: Mapping[int, list[EngineCoreOutput]]) -> None:
        """Outputs leave; the last ones of requests among them."""
        if self._live:
            for output in (output for due in outputs.values() for output in due):
                if output.finish_reason is not None:
                    self._ended(output.request_id, output.finish_reason, output.error)

    def aborted(self, request_ids: Iterable[str]) -> None:
        """Requests were ended by their clients."""
        if self._live:
            for request_id in request_ids:
                self._ended(request_id, FinishReason.ABORT, None)

    def _ended(self, request_id: str, reason: FinishReason, error: str | None) -> None:
        request = self._live.pop(request_id, None)
        if request is not None:
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
            for tell in self._tell_of_request:
                tell(record)
