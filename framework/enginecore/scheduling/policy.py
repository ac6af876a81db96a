"""Base class of scheduling policies, and the decisions that they return.

A policy decides, and `ContinuousBatchingScheduler` carries it out. The policy sees read-only views,
hears of events, and is not called for every decoded token: a lease says after how many tokens it is
asked again. It knows nothing of overlap or pipeline stages, and none of its decisions changes a
token.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Literal, NamedTuple

from enginecore.interfaces import Rank, RequestView, SchedulerView, VictimChoice, WaitingView

__all__ = ["Delay", "Rank", "RequestView", "SchedulerView", "SchedulingPolicy", "Split", "WaitingView"]


class Delay(NamedTuple):
    """No request is to be admitted now, although requests wait.

    Attributes:
        until: When to ask again at the latest, in seconds on the engine's clock; above `now`. The
            policy is asked earlier if a request arrives or ends, or a step returns.
    """

    until: float


class Split(NamedTuple):
    """Split of one step's tokens between decodes and prompts.

    Attributes:
        prefill: Most prompt tokens in this step.
        chunk: Most tokens of one prompt in this step.
        admit: Most admissions in this step.
        first: Whether decodes or prompts take from the budget first.
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
    """Decides the order of requests. Subclass it: `rank` is required, all else has a default.

    Arguments are positional: name them as you like.

    Attributes:
        preemptive: Whether a waiting request may displace a running one that ranks strictly after
            it.
    """

    preemptive: bool = False

    def start(self, scheduler: SchedulerView, /) -> None:  # noqa: B027
        """Called once, before any request.

        Raises:
            ConfigurationError: settings of the policy do not go with these limits.
        """

    @abstractmethod
    def rank(self, request: RequestView, scheduler: SchedulerView, /) -> Rank:
        """Sort key of a request, smaller first.

        Asked when it is added or preempted, and when its lease is over. Keys must compare with one
        another: no NaN, no mixed types. An exception for a new request ends that request with the
        error.
        """

    def lease(self, request: RequestView, scheduler: SchedulerView, /) -> int | None:
        """Output tokens, at least 1, until `rank` is asked again while it runs. None: never."""
        return None

    def lane(self, request: RequestView, /) -> Hashable:
        """The waiting lane of a request: a tenant, a class. Asked after `rank`."""
        return None

    def choose(self, scheduler: SchedulerView, /) -> RequestView | Delay | None:
        """The next waiting request to admit. None: no more for now.

        Asked once per admission, and only while requests wait. With no request running and no step
        in flight it must name one or give a `Delay`: nothing else would wake the engine.
        """
        return scheduler.waiting.best()

    def may_give_way(
        self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView, /
    ) -> Sequence[RequestView]:
        """The candidates of `victim` from which the victim component chooses, worst last.

        A policy with classes keeps strictly to them by naming its worst class here. None of them:
        as if `victim` had named None.
        """
        return candidates

    def victim(
        self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView, /
    ) -> RequestView | None:
        """The request that gives way to `needy`, one of the candidates. There is at least one.

        Candidates stand in order of rank, worst last. If `needy` is among them it runs and lacks a
        block; None names itself. Else it waits, and they rank strictly after it; None leaves it
        waiting.

        By default the victim component's choice. A policy that overrides this decides alone, and a
        victim component that is chosen beside it is refused.
        """
        return scheduler.default_victim(self.may_give_way(candidates, needy, scheduler), needy)

    def split(self, scheduler: SchedulerView, /) -> Split:
        """The split of this step's tokens. Asked once per step, first of all.

        Without chunked prefill only `admit` and `mix` count: a prompt is one chunk, and goes first.
        """
        most = scheduler.max_num_batched_tokens
        return Split(prefill=most, chunk=most, admit=most)

    def admit(self, request: RequestView, scheduler: SchedulerView, /) -> str | None:
        """A reason to refuse a request for good, or None.

        Asked when it is added and when it is chosen, but not once it has run.
        """
        return None

    # Events. Empty on purpose, not abstract: most policies keep no state.

    def added(self, request: RequestView, scheduler: SchedulerView, /) -> None:  # noqa: B027
        """A request was accepted and is about to be queued."""

    def admitted(self, request: RequestView, scheduler: SchedulerView, /) -> None:  # noqa: B027
        """A request has got a seat and blocks. `num_preemptions` above 0: it came back."""

    def preempted(self, request: RequestView, scheduler: SchedulerView, /) -> None:  # noqa: B027
        """A request has lost seat and blocks, and is about to be queued again."""

    def ended(self, request: RequestView, scheduler: SchedulerView, /) -> None:  # noqa: B027
        """A request is over, for whatever reason. Exactly once for every `added`."""


class WorstRank(VictimChoice):
    """The request of the worst rank gives way, of equals the newest."""

    def choose(self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView) -> RequestView:
        return candidates[-1]
