"""Requests in order of rank: those that run, and those that wait, in lanes."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Hashable, Iterator, Sequence
from operator import attrgetter

from enginecore.scheduling.policy import Rank
from enginecore.scheduling.state import Phase, SchedulingState

_order = attrgetter("order")
_rank = attrgetter("rank")


def place_of(state: SchedulingState, states: list[SchedulingState]) -> int | None:
    """Where it stands among states in order of (rank, arrival number); None: it is not among them."""
    place = bisect_left(states, state.order, key=_order)
    return place if place < len(states) and states[place] is state else None


class RankedList:
    """Request states in order of (rank, arrival number). A member's rank must not change."""

    def __init__(self) -> None:
        self._states: list[SchedulingState] = []

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[SchedulingState]:
        return iter(self._states)

    def __getitem__(self, index: int) -> SchedulingState:
        return self._states[index]

    def __contains__(self, state: SchedulingState) -> bool:
        return place_of(state, self._states) is not None

    def add(self, state: SchedulingState) -> None:
        """Put it in its place."""
        insort(self._states, state, key=_order)

    def remove(self, state: SchedulingState) -> None:
        """Take it out. Raises KeyError if it is not in."""
        place = place_of(state, self._states)
        if place is None:
            raise KeyError(state.request_id)
        del self._states[place]

    def first(self, count: int, after: Rank = None) -> list[SchedulingState]:
        """The best `count`, or all if there are fewer; of those whose rank is worse than `after`, if given."""
        start = 0 if after is None else bisect_right(self._states, after, key=_rank)
        return self._states[start : start + count]

    def strictly_after(self, rank: Rank) -> list[SchedulingState]:
        """Those whose rank is worse than this, worst last."""
        return self._states[bisect_right(self._states, rank, key=_rank) :]


class WaitingQueue:
    """Fills `WaitingView`. One ranked list per lane; empty lanes vanish."""

    def __init__(self) -> None:
        self._lanes: dict[Hashable, RankedList] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[SchedulingState]:
        for lane in self._lanes.values():
            yield from lane

    def add(self, state: SchedulingState) -> None:
        """Queue it in the lane that it names."""
        lane = self._lanes.get(state.lane) or RankedList()
        lane.add(state)  # may raise, over ranks that do not compare: then nothing has changed
        self._lanes[state.lane] = lane
        self._count += 1

    def remove(self, state: SchedulingState) -> None:
        """Take it out. Raises KeyError if it does not wait."""
        lane = self._lanes[state.lane]
        lane.remove(state)
        self._count -= 1
        if not lane:
            del self._lanes[state.lane]

    def lanes(self) -> Collection[Hashable]:
        """Lanes that are not empty."""
        return self._lanes.keys()

    def head(self, lane: Hashable = None) -> SchedulingState:
        """The first of a lane."""
        return self._lanes[lane][0]

    def first(self, count: int, lane: Hashable = None, after: Rank = None) -> Sequence[SchedulingState]:
        """The first `count` of a lane, of those whose rank is worse than `after`."""
        return self._lanes[lane].first(count, after) if lane in self._lanes else []

    def best(self) -> SchedulingState:
        """The best rank over all lanes."""
        if not self._count:
            raise KeyError("nobody waits")
        return min((lane[0] for lane in self._lanes.values()), key=_order)


class RunningRequests:
    """Seats: requests in prefill, in decode, and those that only wait for their last token.

    Attributes:
        prefilling: In order of rank; known tokens are left to schedule.
        decoding: In the order in which they are to be served.
        draining: Everything is scheduled.
        ranked: Those in prefill and decode, best rank first: whom a victim is chosen from.
    """

    def __init__(self) -> None:
        self.prefilling = RankedList()
        self.decoding: list[SchedulingState] = []
        self.draining: set[SchedulingState] = set()
        self.ranked = RankedList()
        self._num_unswept = 0  # have left `decoding`, and still stand there

    def __len__(self) -> int:
        return len(self.ranked) + len(self.draining)

    def __iter__(self) -> Iterator[SchedulingState]:
        yield from self.ranked
        yield from self.draining

    @property
    def num_decodes(self) -> int:
        """How many are past their prompt."""
        return len(self.decoding) - self._num_unswept

    def seat(self, state: SchedulingState) -> None:
        """It starts with its prompt."""
        state.phase = Phase.PREFILL
        self.prefilling.add(state)
        self.ranked.add(state)

    def to_decode(self, state: SchedulingState) -> None:
        """Its known tokens are all scheduled."""
        self.prefilling.remove(state)
        state.phase = Phase.DECODE
        self.decoding.append(state)

    def to_drain(self, state: SchedulingState) -> None:
        """All its tokens are scheduled. `decoding` is swept by `settle`."""
        self.ranked.remove(state)
        self._num_unswept += 1
        state.phase = Phase.DRAIN
        self.draining.add(state)

    def rerank(self, state: SchedulingState, rank: object) -> None:
        """Give it another rank."""
        if rank != state.rank:
            self.ranked.remove(state)
            state.set_rank(rank)
            self.ranked.add(state)

    def remove(self, state: SchedulingState) -> None:
        """It gives up its seat; its phase still says which. `decoding` is swept by `settle`."""
        if state.phase is Phase.DRAIN:
            self.draining.discard(state)
            return
        self.ranked.remove(state)
        if state.phase is Phase.PREFILL:
            self.prefilling.remove(state)
        else:
            self._num_unswept += 1

    def settle(self) -> None:
        """Sweep `decoding`: one pass, however many have left it."""
        if self._num_unswept:
            self.decoding = [state for state in self.decoding if state.phase is Phase.DECODE]
            self._num_unswept = 0

    def serve_last(self, chosen: list[SchedulingState]) -> None:
        """Move these to the end of `decoding`, so that others come first the next time."""
        served = set(chosen)
        self.decoding = [state for state in self.decoding if state not in served] + chosen
