"""Requests in order of rank: those that run, and those that wait, in lanes."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Hashable, Iterator, Sequence
from operator import attrgetter

from enginecore.scheduling.policy import Rank
from enginecore.scheduling.request_state import RequestState

_order = attrgetter("order")
_rank = attrgetter("rank")


def place_of(state: RequestState, states: list[RequestState]) -> int | None:
    """Where it stands among states in order of (rank, arrival number); None: it is not among them."""
    place = bisect_left(states, state.order, key=_order)
    return place if place < len(states) and states[place] is state else None


class RankedList:
    """Request states in order of (rank, arrival number). A member's rank must not change."""

    def __init__(self) -> None:
        self._states: list[RequestState] = []

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[RequestState]:
        return iter(self._states)

    def __getitem__(self, index: int) -> RequestState:
        return self._states[index]

    def __contains__(self, state: RequestState) -> bool:
        return place_of(state, self._states) is not None

    def add(self, state: RequestState) -> None:
        """Put it in its place."""
        insort(self._states, state, key=_order)

    def remove(self, state: RequestState) -> None:
        """Take it out. Raises KeyError if it is not in."""
        place = place_of(state, self._states)
        if place is None:
            raise KeyError(state.request_id)
        del self._states[place]

    def first(self, count: int, after: Rank = None) -> list[RequestState]:
        """The best `count`, or all if there are fewer; of those whose rank is worse than `after`, if given."""
        start = 0 if after is None else bisect_right(self._states, after, key=_rank)
        return self._states[start : start + count]

    def strictly_after(self, rank: Rank) -> list[RequestState]:
        """Those whose rank is worse than this, worst last."""
        return self._states[bisect_right(self._states, rank, key=_rank) :]


class WaitingQueue:
    """Fills `WaitingView`. One ranked list per lane; empty lanes vanish."""

    def __init__(self) -> None:
        self._lanes: dict[Hashable, RankedList] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[RequestState]:
        for lane in self._lanes.values():
            yield from lane

    def add(self, state: RequestState) -> None:
        """Queue it in the lane that it names."""
        lane = self._lanes.get(state.lane) or RankedList()
        lane.add(state)  # may raise, over ranks that do not compare: then nothing has changed
        self._lanes[state.lane] = lane
        self._count += 1

    def remove(self, state: RequestState) -> None:
        """Take it out. Raises KeyError if it does not wait."""
        lane = self._lanes[state.lane]
        lane.remove(state)
        self._count -= 1
        if not lane:
            del self._lanes[state.lane]

    def lanes(self) -> Collection[Hashable]:
        """Lanes that are not empty."""
        return self._lanes.keys()

    def head(self, lane: Hashable = None) -> RequestState:
        """The first of a lane."""
        return self._lanes[lane][0]

    def first(self, count: int, lane: Hashable = None, after: Rank = None) -> Sequence[RequestState]:
        """The first `count` of a lane, of those whose rank is worse than `after`."""
        return self._lanes[lane].first(count, after) if lane in self._lanes else []

    def best(self) -> RequestState:
        """The best rank over all lanes."""
        if not self._count:
            raise KeyError("nobody waits")
        return min((lane[0] for lane in self._lanes.values()), key=_order)
