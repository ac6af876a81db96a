"""Timelines of single requests: the worst ones, and the phases of each."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from enginecore_lab.run import RequestRun, Run

Phase = Literal["queued", "prefill", "waiting", "decode", "preempted"]
PHASES: tuple[Phase, ...] = ("queued", "prefill", "waiting", "decode", "preempted")


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a request's life. Times are seconds from the start of the workload.

    Attributes:
        phase: "queued" until it was first scheduled; "prefill" in a step that computed a piece of its prompt, or
            again what it had lost; "waiting" between two pieces; "decode"; "preempted" without blocks.
        start: Start of the stretch.
        end: End of the stretch.
        tokens: Computed tokens of a prefill piece, emitted tokens of a decode.
    """

    phase: Phase
    start: float
    end: float
    tokens: int = 0


def time_in_system(each: RequestRun, makespan: float) -> float:
    """Seconds from its arrival to its end, or to the end of the run if it has none."""
    return (makespan if each.ended is None else each.ended) - each.arrival


def worst_requests(run: Run, count: int = 8) -> list[RequestRun]:
    """Requests that failed or did not end, in half of the places at most; then the slowest.

    Of both the longest first, and equals by id. Requests that never came are not among them.
    """
    came = [each for each in run.requests if isfinite(each.arrival)]
    makespan = run.makespan
    came.sort(key=lambda each: (-time_in_system(each, makespan), each.request.request_id))
    broken = [each for each in came if not each.is_complete][: count // 2]
    complete = [each for each in came if each.is_complete]
    return broken + complete[: count - len(broken)]


def outcome(each: RequestRun) -> str:
    """Outcome of the request, in a word."""
    if each.finish_reason is None:
        return "unfinished"
    return "complete" if each.is_complete else str(each.finish_reason)


def segments(run: Run, each: RequestRun, at_most: int = 300) -> list[Segment]:
    """Segments of a request from arrival to end, gapless and in order.

    Args:
        run: The run of the request.
        each: The request.
        at_most: About so many segments: where there are more, the shortest are drawn with what stands before them.
    """
    found = _Walk(run, each).segments
    if len(found) > at_most:
        found = _absorb(found, (found[-1].end - found[0].start) / at_most)
    return found


class _Walk:
    """Goes through one request's life, cutting it into segments; `at` is how far it has come."""

    def __init__(self, run: Run, each: RequestRun) -> None:
        self.segments: list[Segment] = []
        self._each = each
        self._at = each.arrival
        end = run.makespan if each.ended is None else each.ended
        if each.first_scheduled is None:
            self._until(end, "queued")
            return
        self._until(each.first_scheduled, "queued")
        self._scheduled = each.first_scheduled
        for start, settled, tokens in _pieces(run, each):
            self._idle_until(start)
            self._until(settled, "prefill", tokens)
            self._scheduled = start
        self._idle_until(end)

    def _until(self, end: float, phase: Phase, tokens: int = 0) -> None:
        if end > self._at:
            self.segments.append(Segment(phase, self._at, end, tokens))
            self._at = end

    def _idle_until(self, start: float) -> None:
        """Until the next piece, or its end: it decoded as long as it emitted tokens, and then did nothing."""
        self._decode_until(start)
        self._until(start, "preempted" if self._was_preempted(start) else "waiting")

    def _decode_until(self, end: float) -> None:
        times = self._each.token_times
        first, last = bisect_right(times, self._at), bisect_right(times, end)
        if last > first:
            self._until(times[last - 1], "decode", last - first)

    def _was_preempted(self, end: float) -> bool:
        """Whether it lost its blocks since the last piece was scheduled. A token may have come even after that."""
        return any(self._scheduled <= time <= end for time in self._each.preempted_at)


def _pieces(run: Run, each: RequestRun) -> list[tuple[float, float, int]]:
    """Start, end and tokens of every step that computed a piece of it."""
    found = []
    for step, tokens in each.pieces:
        index = bisect_right(run.steps.step, step) - 1
        if index < 0 or run.steps.step[index] != step:
            raise ValueError(f"request {each.request.request_id!r} has a piece in step {step}, which the run lacks")
        found.append((run.steps.started[index], run.steps.settled[index], tokens))
    return found


def _absorb(found: Sequence[Segment], shortest: float) -> list[Segment]:
    """Let each segment that is too short to be seen belong to the one before it."""
    kept = [found[0]]
    for segment in found[1:]:
        last = kept[-1]
        if segment.end - segment.start < shortest or segment.phase == last.phase:
            kept[-1] = Segment(last.phase, last.start, segment.end, last.tokens + segment.tokens)
        else:
            kept.append(segment)
    return kept
