"""Learnt output lengths, and the Gittins index made of them."""

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from itertools import accumulate
from math import inf
from typing import Annotated

from pydantic import Field

from enginecore.scheduling import RequestView, SchedulerView, SchedulingPolicy
from enginecore_schedulers.arguments import NotNegative
from enginecore_schedulers.candidates import WORST

EDGES = (0, *(int(16 * 1.5**step) for step in range(20)))
"""Output tokens at which a bucket of lengths begins."""

FADING = 0.99
"""What each new length leaves of the weight of those before it: about a hundred count."""

DOUBT = 0.05
"""Weight of each bucket before anything was seen, and for ever."""

MOST_CLASSES = 1_000
"""Classes that are learnt apart; requests of further ones share one."""


class OutputLengths:
    """Distribution of the output lengths of one class.

    Attributes:
        indices: For each bucket that a request may have reached: the least output tokens to spend
            on it per chance that it ends by them.
    """

    def __init__(self) -> None:
        self._num_seen = 0
        self._ended = [0.0] * len(EDGES)
        self.indices = self._find_indices()

    def add(self, length: int) -> None:
        """Count a request that ended with this many output tokens."""
        self._ended = [FADING * weight for weight in self._ended]
        self._ended[bisect_right(EDGES, length - 1) - 1] += 1
        self._num_seen += 1
        if self._num_seen < 16 or self._num_seen % 16 == 0:
            self.indices = self._find_indices()

    def _find_indices(self) -> list[float]:
        weights = [weight + DOUBT for weight in self._ended]
        alive = [*accumulate(reversed(weights))][::-1]  # how many get as far as each bucket
        widths = [end - start for start, end in zip(EDGES, [*EDGES[1:], 2 * EDGES[-1]], strict=True)]
        indices = []
        for first in range(len(EDGES)):
            spent = ended = 0.0
            index = inf
            for bucket in range(first, len(EDGES)):
                spent += widths[bucket] * alive[bucket]
                ended += weights[bucket]
                index = min(index, spent / ended)
            indices.append(index)
        return indices


class Gittins(SchedulingPolicy):
    """Learns output lengths; runs the likeliest to end soon first.

    The index of Gittins ("Bandit processes and dynamic allocation indices", Journal of the Royal
    Statistical Society B 41, 1979), which minimises mean latency where lengths are known only as a
    distribution (Aalto, Ayesta and Righter, "On the Gittins index in the M/G/1 queue", Queueing
    Systems 63, 2009). The distribution is what has been seen here, by tenant and by
    `hints["class"]`, the older the lighter; learning it as requests end is our own. Where lengths
    hardly differ requests run to their end as under `fcfs`, where a few are very long those sink as
    under `mlfq`, and tenants with short outputs go first as under `sjf`.

    Args:
        ageing: Tokens that a second since arrival is worth; 0: long requests may starve.
        prompt_weight: Output tokens that a token still to be computed counts as.
        displacements: How often a request gives way to a waiting one at most; 0: never.
    """

    preemptive = True

    def __init__(
        self,
        ageing: NotNegative = 10.0,
        prompt_weight: NotNegative = 0.02,
        displacements: Annotated[int, Field(ge=0, strict=True)] = 8,
    ) -> None:
        self._ageing = ageing
        self._prompt_weight = prompt_weight
        self._displacements = displacements
        self._lengths: dict[Hashable, OutputLengths] = {}
        self._others = OutputLengths()

    def rank(self, request: RequestView, scheduler: SchedulerView) -> float:
        left = self._of(request).indices[self._bucket(request)]
        if not request.num_blocks:
            left += self._cost(request)
        return left + self._ageing * request.arrival

    def lease(self, request: RequestView, scheduler: SchedulerView) -> int | None:
        """Ask again at the end of its bucket."""
        bucket = self._bucket(request) + 1
        return EDGES[bucket] - request.num_attained_tokens if bucket < len(EDGES) else None

    def may_give_way(
        self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView
    ) -> Sequence[RequestView]:
        if needy.num_blocks:
            return candidates
        return [
            other
            for other in candidates[-WORST:]
            if other.num_preemptions < self._displacements and other.rank > needy.rank + self._cost(other)
        ]

    def ended(self, request: RequestView, scheduler: SchedulerView) -> None:
        if request.num_output_tokens:
            self._of(request).add(request.num_output_tokens)

    def _of(self, request: RequestView) -> OutputLengths:
        key = request.tenant, request.hints.get("class")
        lengths = self._lengths.get(key)
        if lengths is None and len(self._lengths) < MOST_CLASSES:
            lengths = self._lengths[key] = OutputLengths()
        return lengths or self._others

    def _cost(self, request: RequestView) -> float:
        """Cost of computing all known tokens of a request."""
        return self._prompt_weight * (request.num_prompt_tokens + request.num_output_tokens)

    @staticmethod
    def _bucket(request: RequestView) -> int:
        return bisect_right(EDGES, request.num_attained_tokens) - 1
