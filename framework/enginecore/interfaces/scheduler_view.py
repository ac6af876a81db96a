"""Read-only views of the scheduler and its requests, for scheduling policies and victim choices."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, Protocol

Rank = Any
"""Anything that orders: a number or a tuple of numbers. Smaller goes first."""


class RequestView(Protocol):
    """One request. Read-only; counts are live."""

    @property
    def request_id(self) -> str:
        """Id of the request, unique among those that have not ended."""
        ...

    @property
    def seq(self) -> int:
        """Arrival number, unique: the tie-breaker."""
        ...

    @property
    def arrival(self) -> float:
        """When the request arrived, in seconds on the engine's clock."""
        ...

    @property
    def priority(self) -> float:
        """Priority of the request; smaller is more urgent."""
        ...

    @property
    def tenant(self) -> str:
        """As in the request."""
        ...

    @property
    def deadline(self) -> float | None:
        """As in the request, in seconds on the engine's clock."""
        ...

    @property
    def hints(self) -> Mapping[str, float]:
        """As in the request."""
        ...

    @property
    def num_prompt_tokens(self) -> int:
        """Length of the prompt."""
        ...

    @property
    def max_tokens(self) -> int:
        """Output tokens at most, as clamped to the context and the KV cache."""
        ...

    @property
    def num_output_tokens(self) -> int:
        """Output tokens that are known."""
        ...

    @property
    def num_attained_tokens(self) -> int:
        """Output tokens known or in flight: what a quantum counts."""
        ...

    @property
    def num_scheduled_tokens(self) -> int:
        """Tokens computed or being computed: the work that a preemption throws away."""
        ...

    @property
    def num_blocks(self) -> int:
        """KV blocks that the request holds."""
        ...

    @property
    def num_preemptions(self) -> int:
        """Number of times that the request was preempted."""
        ...

    @property
    def rank(self) -> Rank:
        """The rank that the policy's `rank` last returned for this request."""
        ...

    @property
    def since(self) -> float:
        """When the present state began, waiting or running, in seconds on the engine's clock."""
        ...


class WaitingView(Protocol):
    """The waiting requests, in lanes; each lane is ordered by rank, ties by arrival number."""

    def __len__(self) -> int:
        """Number of waiting requests."""
        ...

    def lanes(self) -> Collection[Hashable]:
        """Lanes that are not empty."""
        ...

    def head(self, lane: Hashable = None) -> RequestView:
        """The first of a lane. Raises KeyError if the lane is empty."""
        ...

    def first(self, count: int, lane: Hashable = None, after: Rank = None) -> Sequence[RequestView]:
        """The first `count` requests of a lane, or all if there are fewer.

        With `after`, only requests that rank strictly after it.
        """
        ...

    def best(self) -> RequestView:
        """The request of the best rank over all lanes. Raises KeyError if no request waits."""
        ...


class SchedulerView(Protocol):
    """The scheduler during one step. One live object; costs nothing until read."""

    @property
    def step(self) -> int:
        """Number of the step."""
        ...

    @property
    def now(self) -> float:
        """Seconds on the engine's clock, fixed for the step, or for the arrival between steps: the
        only clock that a policy may read.
        """
        ...

    @property
    def waiting(self) -> WaitingView:
        """The waiting requests."""
        ...

    @property
    def running(self) -> Sequence[RequestView]:
        """Requests that hold blocks and have tokens left to schedule, best rank first."""
        ...

    @property
    def num_running(self) -> int:
        """Seats taken, of `max_num_seqs`."""
        ...

    @property
    def num_decodes(self) -> int:
        """Running requests that are past their prompt."""
        ...

    @property
    def max_num_batched_tokens(self) -> int:
        """Tokens in a step at most."""
        ...

    @property
    def max_num_seqs(self) -> int:
        """Seats."""
        ...

    @property
    def enable_chunked_prefill(self) -> bool:
        """Whether a prompt may be split over steps."""
        ...

    @property
    def block_size(self) -> int:
        """Tokens per KV block."""
        ...

    @property
    def num_free_blocks(self) -> int:
        """KV blocks that no request holds."""
        ...

    @property
    def num_blocks(self) -> int:
        """KV blocks in the pool."""
        ...

    def cached_tokens(self, request: RequestView) -> int:
        """How many tokens of the request the prefix cache holds.

        A hint: pins nothing, touches no order, and is looked up once in a step, whatever is
        admitted meanwhile.
        """
        ...

    def default_victim(self, candidates: Sequence[RequestView], needy: RequestView) -> RequestView | None:
        """The candidate that the victim component names; None if there are no candidates.

        For `SchedulingPolicy.victim`.
        """
        ...
