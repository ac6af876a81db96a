"""Drives an engine core through a workload: requests come by the clock, and steps run while there is work."""

from collections.abc import Callable
from functools import partial

from enginecore.clock import Clock, VirtualClock
from enginecore.core import EngineCore
from enginecore.errors import ConfigurationError, InvalidRequestError
from enginecore_lab.replay.recorder import Recorder
from enginecore_lab.replay.sources import Arrival, RequestSource
from enginecore_lab.workload import Workload, WorkloadRequest

Send = Callable[[WorkloadRequest, float], None]
"""Hands a request to the engine core, with its arrival on the engine's clock."""


class Driver:
    """One run. The same for both clocks: on a real one, what falls due during a step is sent right after it."""

    def __init__(self, core: EngineCore, clock: Clock, workload: Workload, source: RequestSource, send: Send) -> None:
        self._core = core
        self._clock = clock
        self._source = source
        self._send = send
        self._start = clock.now()
        self.recorder = Recorder(workload, self._start, self._ended)
        core.add_observer(self.recorder)

    def run(self, *, until: float | None, on_progress: Callable[[int], None]) -> None:
        """Run to the end of the last request, or for `until` seconds.

        Raises:
            ConfigurationError: time is virtual, and the executor takes none.
            EngineDeadError: the engine failed.
        """
        core, clock, recorder = self._core, self._clock, self.recorder
        end = None if until is None else self._start + until
        unchecked = isinstance(clock, VirtualClock)
        for arrival in self._source.first():
            self._expect(arrival)
        while end is None or clock.now() < end:
            clock.wait(deadline=clock.now())  # requests that are due come in here, for a step may never wait
            if core.has_requests():
                before = recorder.num_ended
                recorder.outputs(core.advance()[0])
                if recorder.num_ended > before:
                    on_progress(recorder.num_ended)
                if unchecked and recorder.steps.step:
                    self._check_time_passes()
                    unchecked = False
            elif (event := clock.next_event()) is not None:
                clock.wait(deadline=event if end is None else min(event, end))
            else:
                return
        for request in core.scheduler.unfinished_requests:
            recorder.unfinished(request)

    def _check_time_passes(self) -> None:
        steps = self.recorder.steps
        if steps.started[0] == steps.settled[0]:
            raise ConfigurationError(
                f"executor {self._core.info.components['executor']!r} took no time for its first step on the virtual "
                "clock, so it simulates nothing: choose executor.use = 'simulated', or replay in real time"
            )

    def _expect(self, arrival: Arrival) -> None:
        run = self.recorder.requests[arrival.request.request_id]
        run.arrival = arrival.at
        self._clock.call_at(self._start + arrival.at, partial(self._arrive, arrival.request, self._start + arrival.at))

    def _arrive(self, request: WorkloadRequest, at: float) -> None:
        try:
            self._send(request, at)
        except InvalidRequestError as error:
            self.recorder.refused(request.request_id, str(error), self._clock.now())

    def _ended(self, request_id: str, ended: float) -> None:
        for arrival in self._source.following(request_id, ended):
            self._expect(arrival)
