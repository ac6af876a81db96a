"""Chaos, a policy of random decisions: rules that hold under it hold under every policy."""

from collections.abc import Hashable, Sequence
from random import Random

from enginecore.scheduling import Delay, RequestView, SchedulerView, SchedulingPolicy, Split


class Chaos(SchedulingPolicy):
    """Decides everything at random, within what a policy may decide.

    Args:
        seed: The same seed decides the same.
        refuses: Share of requests that it refuses.
    """

    preemptive = True

    def __init__(self, seed: int = 0, refuses: float = 0.0) -> None:
        self._random = Random(seed)
        self._refuses = refuses

    def rank(self, request: RequestView, scheduler: SchedulerView) -> int:
        return self._random.randrange(8)

    def lease(self, request: RequestView, scheduler: SchedulerView) -> int | None:
        return self._random.choice((None, 1, 2, 5))

    def lane(self, request: RequestView) -> Hashable:
        return self._random.randrange(3)

    def choose(self, scheduler: SchedulerView) -> RequestView | Delay | None:
        if self._random.random() < 0.2:
            return None if scheduler.num_running else Delay(scheduler.now + self._random.random())
        lane = self._random.choice(sorted(scheduler.waiting.lanes(), key=repr))
        return self._random.choice(scheduler.waiting.first(4, lane))

    def victim(
        self, candidates: Sequence[RequestView], needy: RequestView, scheduler: SchedulerView
    ) -> RequestView | None:
        return self._random.choice([None, *candidates])

    def split(self, scheduler: SchedulerView) -> Split:
        most = scheduler.max_num_batched_tokens
        return Split(
            prefill=self._random.randint(1, most),
            chunk=self._random.randint(1, most),
            admit=self._random.randint(0 if scheduler.num_running else 1, 4),
            first=self._random.choice(("decode", "prefill")),
            mix=self._random.random() < 0.5,
        )

    def admit(self, request: RequestView, scheduler: SchedulerView) -> str | None:
        return "chaos" if self._random.random() < self._refuses else None
