"""The seam of a scheduling policy: what it sees, and what it may decide.

A policy decides; `ContinuousBatchingScheduler` does. It sees read-only views, is told what happens, and is never
called once per decoded token: a lease says after how many tokens it wants to be asked again. It declares nothing about
overlap or pipeline stages, and no decision of its can change a token.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Literal, NamedTuple

from enginecore.interfaces import Rank, RequestView, SchedulerView, VictimChoice, WaitingView

__all__ = ["Delay", "Rank", "RequestView", "SchedulerView", "SchedulingPolicy", "Split", "WaitingView"]


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

    def may_give_way(
        self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView, /
    ) -> Sequence[RequestView]:
        """Among whom the victim component chooses: all candidates of `victim`, or some of them, worst last.

        A policy with classes keeps strictly to them by naming its worst class here. Nobody: as if it had named None.
        """
        return candidates

    def victim(
        self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView, /
    ) -> RequestView | None:
        """Who gives way to `needy`. Candidates stand in order of rank, worst last; there is at least one.

        Needy is among them: it runs and lacks a block; name one, perhaps itself (None is itself). Needy is not among
        them: it waits, and the candidates rank strictly after it; None leaves it waiting.

        By default the victim component's choice. A policy that overrides this decides alone, and choosing a victim
        component beside it is refused.
        """
        return scheduler.default_victim(self.may_give_way(candidates, needy, scheduler), needy)

    def split(self, scheduler: SchedulerView, /) -> Split:
        """How this step's tokens are shared. Asked once per step, first of all.

        Without chunked prefill only `admit` and `mix` count: a prompt is one chunk, and goes first.
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


class WorstRank(VictimChoice):
    """The request that the policy ranks worst gives way, of equals the newest. Under fcfs that is the newest of all."""

    def choose(self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView) -> RequestView:
        return candidates[-1]
