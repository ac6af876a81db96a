"""The seam of a scheduling policy: what it sees, and what it may decide.

A policy decides; `ContinuousBatchingScheduler` does. It sees read-only views, is told what happens, and is never
called once per decoded token: a lease says after how many tokens it wants to be asked again. It declares nothing about
overlap or pipeline stages, and no decision of its can change a token.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

Rank = Any
"""Anything that orders: a number or a tuple of numbers. Smaller goes first."""


class RequestView(Protocol):
    """A request as policies see it. Read-only; counts are live."""

    @property
    def request_id(self) -> str:
        """Its id."""
        ...

    @property
    def seq(self) -> int:
        """Arrival number, unique: the tie-breaker."""
        ...

    @property
    def arrival(self) -> float:
        """When it arrived, in seconds on the engine's clock."""
        ...

    @property
    def priority(self) -> float:
        """As in the request; smaller is more urgent."""
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
        """Length of its prompt."""
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
    def num_blocks(self) -> int:
        """KV blocks that it holds."""
        ...

    @property
    def num_preemptions(self) -> int:
        """How often it lost them."""
        ...

    @property
    def rank(self) -> Rank:
        """What `rank()` last returned for it."""
        ...

    @property
    def since(self) -> float:
        """When it entered its present state, waiting or running, in seconds on the engine's clock."""
        ...


class WaitingView(Protocol):
    """The waiting requests, in lanes; each lane is ordered by rank, ties by arrival number."""

    def __len__(self) -> int:
        """How many wait."""
        ...

    def lanes(self) -> Collection[Hashable]:
        """Lanes that are not empty."""
        ...

    def head(self, lane: Hashable = None) -> RequestView:
        """The first of a lane. Raises KeyError if the lane is empty."""
        ...

    def first(self, count: int, lane: Hashable = None, after: Rank = None) -> Sequence[RequestView]:
        """The first `count` of a lane, or all if there are fewer; with `after`, of those ranked strictly after it."""
        ...

    def best(self) -> RequestView:
        """The best rank over all lanes. Raises KeyError if nobody waits."""
        ...


class SchedulerView(Protocol):
    """The world of one step. One live object; costs nothing until read."""

    @property
    def step(self) -> int:
        """Number of the step."""
        ...

    @property
    def now(self) -> float:
        """Seconds on the engine's clock, fixed for the step, or for the arrival between steps: the only clock that a
        policy may read.
        """
        ...

    @property
    def waiting(self) -> WaitingView:
        """Who waits."""
        ...

    @property
    def running(self) -> Sequence[RequestView]:
        """Who holds blocks and has tokens left to schedule, best rank first."""
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
    def num_free_blocks(self) -> int:
        """KV blocks that nobody holds."""
        ...

    @property
    def num_blocks(self) -> int:
        """KV blocks in the pool."""
        ...

    def cached_tokens(self, request: RequestView) -> int:
        """How many of its tokens the prefix cache holds now. A hint: pins nothing, touches no order."""
        ...


class Delay(NamedTuple):
    """Nobody is to be admitted now, although somebody may be waiting.

    Attributes:
        until: When to ask again at the latest, in seconds on the engine's clock; above `now`. It is asked earlier if
            anything happens: a request arrives or ends, a step returns.
    """

    until: float


class Split(NamedTuple):
    """How the tokens of one step are shared.

    Attributes:
        prefill: Most prompt tokens in this step.
        chunk: Most tokens of one prompt in this step.
        admit: Most admissions in this step.
        first: Who takes from the budget first.
        mix: False: no decodes in a step that prefills.
    """

    prefill: int
    chunk: int
    admit: int
    first: Literal["decode", "prefill"] = "decode"
    mix: bool = True

    @property
    def is_valid(self) -> bool:
        """Whether all fields are in range."""
        in_range = self.chunk >= 1 and self.prefill >= 0 and self.admit >= 0
        return in_range and self.first in ("decode", "prefill")


class SchedulingPolicy(ABC):
    """Subclass it. Only `rank` is required; every other member has the default shown. Name the arguments as you like.

    Attributes:
        preemptive: Whether a waiting request may displace a running one that ranks strictly after it.
    """

    preemptive: bool = False

    def start(self, scheduler: SchedulerView, /) -> None:  # noqa: B027
        """Called once, before any request. Raise ConfigurationError if its settings do not go with these limits."""

    @abstractmethod
    def rank(self, request: RequestView, scheduler: SchedulerView, /) -> Rank:
        """Sort key, smaller first. Asked when it is added or preempted, and when its lease is over.

        Keys must compare with one another, so no NaN and no mixed types. One that cannot be made for a new request
        (an exception) ends that request with the error.
        """

    def lease(self, request: RequestView, scheduler: SchedulerView, /) -> int | None:
        """After how many more output tokens, at least 1, `rank` is asked again while it runs. None: never."""
        return None

    def lane(self, request: RequestView, /) -> Hashable:
        """Which waiting lane it stands in: a tenant, a class. Asked after `rank`."""
        return None

    def choose(self, scheduler: SchedulerView, /) -> RequestView | Delay | None:
        """The next waiting request to admit. Asked once per admission, never when nobody waits. None: no more for now.

        With nothing running and nothing in flight it must name somebody, or a `Delay`: nothing else would ever wake the
        engine.
        """
        return scheduler.waiting.best()

    def victim(
        self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView, /
    ) -> RequestView | None:
        """Who gives way to `needy`. Candidates stand in order of rank, worst last; there is at least one.

        Needy is among them: it runs and lacks a block; name one, perhaps itself (None is itself). Needy is not among
        them: it waits, and the candidates rank strictly after it; None leaves it waiting.
        """
        return candidates[-1]

    def split(self, scheduler: SchedulerView, /) -> Split:
        """How this step's tokens are shared. Asked once per step, first of all.

        Without chunked prefill only `admit` and `mix` count: a prompt needs the budget in one piece, and goes first.
        """
        most = scheduler.max_num_batched_tokens
        return Split(prefill=most, chunk=most, admit=most)

    def admit(self, request: RequestView, scheduler: SchedulerView, /) -> str | None:
        """A reason to refuse it for good, or None. Asked when it is added and when chosen; never once it has run."""
        return None

    # What happened. Empty on purpose, not abstract: most policies keep no books.

    def added(self, request: RequestView, scheduler: SchedulerView, /) -> None:  # noqa: B027
        """It was accepted and is about to be queued."""

    def admitted(self, request: RequestView, scheduler: SchedulerView, /) -> None:  # noqa: B027
        """It holds a seat and blocks. `num_preemptions` above 0: it came back."""

    def preempted(self, request: RequestView, scheduler: SchedulerView, /) -> None:  # noqa: B027
        """It lost them and is about to be queued again."""

    def ended(self, request: RequestView, scheduler: SchedulerView, /) -> None:  # noqa: B027
        """It is over, for whatever reason. Exactly once for every `added`."""
