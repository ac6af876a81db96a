"""Measurements of live requests, by block."""

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import nan
from statistics import fmean

from enginecore.messages import EngineCoreOutput, FinishReason
from enginecore_lab.live.switchback import Block


@dataclass(slots=True)
class LiveRequest:
    """One request, in seconds on the experiment's clock.

    Attributes:
        arm: Arm whose engine core serves it.
        block: When it came.
        sent: When it came.
        first_token: None before.
        last_token: None before.
        num_tokens: So far.
    """

    arm: int
    block: Block
    sent: float
    first_token: float | None = None
    last_token: float | None = None
    num_tokens: int = 0

    def saw(self, num_tokens: int, now: float) -> None:
        """Tokens of it came."""
        if num_tokens:
            self.first_token = now if self.first_token is None else self.first_token
            self.last_token = now
            self.num_tokens += num_tokens

    @property
    def ttft(self) -> float:
        """Seconds to the first token; NaN without any."""
        return nan if self.first_token is None else self.first_token - self.sent

    @property
    def tpot(self) -> float:
        """Seconds per token after the first; 0 without a second."""
        if self.first_token is None or self.last_token is None or self.num_tokens < 2:
            return 0.0
        return (self.last_token - self.first_token) / (self.num_tokens - 1)

    @property
    def e2e(self) -> float:
        """Seconds to the last token; NaN without any."""
        return nan if self.last_token is None else self.last_token - self.sent


METRICS: Mapping[str, Callable[[LiveRequest], float]] = {
    "ttft": lambda request: request.ttft,
    "tpot": lambda request: request.tpot,
    "e2e": lambda request: request.e2e,
}
"""What a request can be judged by, in seconds; less is better."""


@dataclass(slots=True)
class ArmTally:
    """One arm's requests outside burn-ins.

    Attributes:
        values: Values of each metric, per request that completed.
        failed: How many ended by an error, or without a token.
        aborted: How many their clients left before the first token.
        met: Whether the latest requests met the objectives, failures included.
    """

    met: "deque[bool]"
    values: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in METRICS})
    failed: int = 0
    aborted: int = 0

    @property
    def attainment(self) -> float:
        """Share of the latest requests that met the objectives; NaN without any."""
        return fmean(self.met) if self.met else nan

    def mean(self, metric: str) -> float:
        """NaN without any."""
        return fmean(self.values[metric]) if self.values[metric] else nan


class Ledger:
    """Follows requests from sending to end, and sums up each block.

    Args:
        metric: Metric by which blocks are judged.
        penalty_seconds: Latency that a failed request counts with.
        meets: Whether a completed request met the objectives.
        window: How many of the latest requests of an arm `ArmTally.met` holds.
    """

    def __init__(self, metric: str, penalty_seconds: float, meets: Callable[[LiveRequest], bool], window: int) -> None:
        self._metric = METRICS[metric]
        self._penalty = penalty_seconds
        self._meets = meets
        self._live: dict[str, LiveRequest] = {}
        self._unended: Counter[int] = Counter()  # requests of each block that have not ended
        self._blocks: dict[int, list[float]] = {}
        self.tallies = (ArmTally(deque(maxlen=window)), ArmTally(deque(maxlen=window)))

    def send(self, request_id: str, arm: int, block: Block, now: float) -> None:
        """A request goes out."""
        self._live[request_id] = LiveRequest(arm, block, now)
        self._unended[block.number] += 1

    def drop_request(self, request_id: str) -> None:
        """Drop a request that was never served."""
        if (request := self._live.pop(request_id, None)) is not None:
            self._unended[request.block.number] -= 1

    def record_departure(self, request_id: str, now: float) -> None:
        """Record that the client of a request has left: a stop string has come, or the stream is no
        longer read.

        With tokens it counts as completed by the last of them. Without, as having taken as long as it was waited for:
        an arm that tires people out must not look better for it.
        """
        if (request := self._live.pop(request_id, None)) is not None:
            self._end(request, FinishReason.ABORT, now - request.sent)

    def see(self, output: EngineCoreOutput, now: float) -> None:
        """An engine core's word on a request."""
        request = self._live.get(output.request_id)
        if request is None:
            return
        request.saw(len(output.new_token_ids), now)
        if output.finish_reason is FinishReason.ABORT:
            self.record_departure(output.request_id, now)
        elif output.finish_reason is not None:
            del self._live[output.request_id]
            self._end(request, output.finish_reason, self._penalty)

    def take_pair(self, pair: int) -> tuple[list[float], list[float]] | None:
        """The values of its two blocks in order of time; None: some of their requests have not ended."""
        first, second = 2 * pair, 2 * pair + 1
        if self._unended[first] or self._unended[second]:
            return None
        del self._unended[first], self._unended[second]
        return self._blocks.pop(first, []), self._blocks.pop(second, [])

    def _end(self, request: LiveRequest, reason: FinishReason, else_taken: float) -> None:
        """Record the end of a request; without a measurement it has taken so long."""
        self._unended[request.block.number] -= 1
        if request.block.is_burn_in:
            return
        tally = self.tallies[request.arm]
        is_served = reason is not FinishReason.ERROR and request.first_token is not None
        tally.met.append(is_served and self._meets(request))
        self._blocks.setdefault(request.block.number, []).append(self._metric(request) if is_served else else_taken)
        if is_served:
            for name, measure in METRICS.items():
                tally.values[name].append(measure(request))
        elif reason is FinishReason.ABORT:
            tally.aborted += 1
        else:
            tally.failed += 1
