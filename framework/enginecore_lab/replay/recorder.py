"""The recorder of a replay. It must be cheap: millions of tokens go through here."""

from array import array
from collections.abc import Callable, Mapping

from enginecore.interfaces import Observer, RequestRecord, StepRecord
from enginecore.messages import EngineCoreOutputs, FinishReason, SchedulerOutput
from enginecore.request import Request
from enginecore_lab.run import RequestRun, StepSeries
from enginecore_lab.workload import Workload

NEVER = float("inf")


class Recorder(Observer):
    """Observes an engine core and reads its outputs. Times in are the engine's, times out count from the start.

    Attributes:
        requests: By id, in the workload's order.
        steps: Records of all settled steps.
        num_ended: Requests that ended so far.
    """

    def __init__(self, workload: Workload, start: float, on_end: Callable[[str, float], None]) -> None:
        self.requests = {
            request.request_id: RequestRun(request, NEVER, token_times=array("d")) for request in workload.requests
        }
        self.steps = StepSeries()
        self.num_ended = 0
        self._start = start
        self._on_end = on_end
        self._add_time = {request_id: run.token_times.append for request_id, run in self.requests.items()}
        self._left: dict[str, int] = {}  # known tokens to compute, of those that have not come to their first decode

    def outputs(self, outputs: Mapping[int, EngineCoreOutputs]) -> None:
        """Tokens were emitted."""
        add_time, start = self._add_time, self._start
        for due in outputs.values():
            now = due.timestamp - start
            for output in due.outputs:
                for _ in output.new_token_ids:
                    add_time[output.request_id](now)

    def step_finished(self, record: StepRecord, /) -> None:
        plan, stats, steps = record.scheduled, record.stats, self.steps
        num_prefills, num_tokens = self._prefills(plan, record.started - self._start)
        steps.step.append(record.step)
        steps.started.append(record.started - self._start)
        steps.settled.append(record.settled - self._start)
        steps.num_decodes.append(record.num_requests - num_prefills)
        steps.num_prefill_tokens.append(num_tokens)
        steps.num_requests.append(record.num_requests)
        steps.num_running.append(stats.num_running)
        steps.num_waiting.append(stats.num_waiting)
        steps.num_free_blocks.append(stats.num_free_blocks)

    def request_finished(self, record: RequestRecord, /) -> None:
        run = self.requests[record.request_id]
        run.num_cached_tokens, run.num_preemptions = record.num_cached_tokens, record.num_preemptions
        self._end(run, record.ended, record.finish_reason, record.error)

    def refused(self, request_id: str, error: str, now: float) -> None:
        """The engine core did not take it: it failed, and counts."""
        self._end(self.requests[request_id], now, FinishReason.ERROR, error)

    def unfinished(self, request: Request) -> None:
        """The replay was cut short before this one ended."""
        run = self.requests[request.request_id]
        run.num_cached_tokens, run.num_preemptions = max(request.num_cached_tokens, 0), request.num_preemptions

    def _end(self, run: RequestRun, now: float, reason: FinishReason, error: str | None) -> None:
        run.ended, run.finish_reason, run.error = now - self._start, reason, error
        self.num_ended += 1
        self._on_end(run.request.request_id, run.ended)

    def _prefills(self, plan: SchedulerOutput, started: float) -> tuple[int, int]:
        """How many requests of a step computed tokens that were known before, and how many tokens."""
        left, num_prefills, num_tokens = self._left, 0, 0
        for request_id in plan.finished_ids:
            left.pop(request_id, None)
        for request_id in plan.preempted_ids:
            left.pop(request_id, None)
            self.requests[request_id].preempted_at.append(started)
        for new in plan.new_requests:
            left[new.request_id] = len(new.token_ids) - new.num_computed_tokens
        for request_id in tuple(left):
            tokens = plan.num_scheduled_tokens.get(request_id)
            if tokens is None:
                continue
            num_prefills += 1
            num_tokens += tokens
            self._piece(self.requests[request_id], plan.step, tokens, started)
            left[request_id] -= tokens
            if left[request_id] <= 0:
                del left[request_id]
        return num_prefills, num_tokens

    @staticmethod
    def _piece(run: RequestRun, step: int, tokens: int, started: float) -> None:
        run.pieces.append((step, tokens))
        if run.first_scheduled is None:
            run.first_scheduled = started
