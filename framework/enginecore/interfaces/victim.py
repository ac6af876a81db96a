"""VictimChoice: which running request gives way when blocks or seats are short."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from enginecore.interfaces.scheduler_view import RequestView, SchedulerView


class VictimChoice(ABC):
    """Names the running request that loses its blocks, wherever the scheduling policy leaves that
    open. Subclass it.

    A victim is queued again and computes its tokens anew, so a choice costs time and never changes
    a token.
    """

    __slots__ = ()

    @abstractmethod
    def choose(
        self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView, /
    ) -> RequestView | None:
        """The request that gives way to `needy`.

        If `needy` runs and lacks a block, it may be among the candidates, and None means `needy`
        itself. If it waits, the candidates rank strictly after it, and None leaves it waiting. Keep
        no state about choices: the scheduler does not report what became of them.

        Args:
            candidates: In order of rank, worst last; at least one.
            needy: The request that lacks a block or a seat.
            scheduler: The step's view.
        """
