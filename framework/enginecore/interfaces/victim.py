"""VictimChoice: who gives way when memory or seats are short."""

from collections.abc import Sequence
from typing import Protocol

from enginecore.interfaces.scheduler_view import RequestView, SchedulerView


class VictimChoice(Protocol):
    """Names the running request that loses its blocks, wherever the scheduling policy leaves that open.

    A victim is queued again and computes its tokens anew, so a choice costs time and never changes a token.
    """

    def choose(
        self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView, /
    ) -> RequestView | None:
        """Who gives way to `needy`. Candidates stand in order of rank, worst last; there is at least one.

        Needy runs and lacks a block: it may be among the candidates, and None means needy itself. Needy waits: the
        candidates rank strictly after it, and None leaves it waiting. Keep no books: nothing says what became of it.
        """
        ...
