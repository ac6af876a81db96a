"""Live requests in their queues: those that wait, in lanes, and those that run."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Hashable, Iterator, Sequence
from operator import attrgetter

from enginecore.errors import InvariantError
from enginecore.scheduling.policy import Rank
from enginecore.scheduling.state import Phase, SchedulingState

_order = attrgetter("order")
_rank = attrgetter("rank")


class RankedList:
    """Requests in order of (rank, arrival number). A member's rank must not change."""

    def __init__(self, states: Sequence[SchedulingState] = ()) -> None:
        self._states = list(states)

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[SchedulingState]:
        return iter(self._states)

    def __getitem__(self, index: int) -> SchedulingState:
        return self._states[index]

    def __contains__(self, state: SchedulingState) -> bool:
        return self._find(state) is not None

    def add(self, state: SchedulingState) -> None:
        """Put a request in its place."""
        insort(self._states, state, key=_order)

    def remove(self, state: SchedulingState) -> None:
        """Take a member out. Raises KeyError if it is none."""
        place = self._find(state)
        if place is None:
            raise KeyError(state.request_id)
        del self._states[place]

    def first(self, count: int, after: Rank = None) -> list[SchedulingState]:
        """The best `count` members, or fewer; with `after`, of those ranked worse than that."""
        start = 0 if after is None else bisect_right(self._states, after, key=_rank)
        return self._states[start : start + count]

    def after(self, rank: Rank) -> "RankedList":
        """The members whose rank is worse than this."""
        return RankedList(self._states[bisect_right(self._states, rank, key=_rank) :])

    def _find(self, state: SchedulingState) -> int | None:
        states = self._states
        place = bisect_left(states, state.order, key=_order)
        return place if place < len(states) and states[place] is state else None


class WaitingQueue:
    """Requests that wait, one ranked list per lane. Empty lanes vanish. Fills `WaitingView`."""

    def __init__(self) -> None:
        self._lanes: dict[Hashable, RankedList] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[SchedulingState]:
        for lane in self._lanes.values():
            yield from lane

    def add(self, state: SchedulingState) -> None:
        """Queue a request in its lane."""
        lane = self._lanes.get(state.lane) or RankedList()
        lane.add(state)  # may raise, over ranks that do not compare: then nothing has changed
        self._lanes[state.lane] = lane
        self._count += 1

    def remove(self, state: SchedulingState) -> None:
        """Take a request out. Raises KeyError if it does not wait."""
        lane = self._lanes[state.lane]
        lane.remove(state)
        self._count -= 1
        if not lane:
            del self._lanes[state.lane]

    def lanes(self) -> Collection[Hashable]:
        """Lanes that are not empty."""
        return self._lanes.keys()

    def head(self, lane: Hashable = None) -> SchedulingState:
        """The first of a lane. Raises KeyError if the lane is empty."""
        return self._lanes[lane][0]

    def first(self, count: int, lane: Hashable = None, after: Rank = None) -> Sequence[SchedulingState]:
        """The first `count` of a lane, of those whose rank is worse than `after`."""
        return self._lanes[lane].first(count, after) if lane in self._lanes else []

    def best(self) -> SchedulingState:
        """The best rank over all lanes. Raises KeyError if no request waits."""
        if not self._count:
            raise KeyError("no request waits")
        return min((lane[0] for lane in self._lanes.values()), key=_order)


class RunningRequests:
    """Requests that hold a seat and blocks: in prefill, in decode, or draining.

    Attributes:
        prefilling: Known tokens are left to schedule; in order of rank.
        draining: All tokens are scheduled.
        ranked: Requests in prefill and decode: the candidates for a victim.
    """

    def __init__(self, max_num_seqs: int) -> None:
        self.prefilling = RankedList()
        self.draining: set[SchedulingState] = set()
        self.ranked = RankedList()
        self._max_num_seqs = max_num_seqs
        self._decoding: list[SchedulingState] = []
        self._num_left = 0  # have left decode, and still stand in `_decoding`

    def __len__(self) -> int:
        return len(self.ranked) + len(self.draining)

    def __iter__(self) -> Iterator[SchedulingState]:
        yield from self.ranked
        yield from self.draining

    @property
    def decoding(self) -> list[SchedulingState]:
        """Requests in decode, in the order in which they are served. Not to be changed."""
        if self._num_left:  # one pass, however many have left
            self._decoding = [state for state in self._decoding if state.phase is Phase.DECODE]
            self._num_left = 0
        return self._decoding

    def ranked_after(self, rank: Rank) -> RankedList:
        """Candidates for a victim whose rank is worse than this."""
        return self.ranked.after(rank)

    @property
    def num_decodes(self) -> int:
        """How many are in decode."""
        return len(self._decoding) - self._num_left

    @property
    def num_free_seats(self) -> int:
        """How many requests may be admitted."""
        return self._max_num_seqs - len(self)

    def add(self, state: SchedulingState) -> None:
        """Give a seat to a request, which starts with its prompt."""
        self.prefilling.add(state)
        self.ranked.add(state)

    def start_decode(self, state: SchedulingState) -> None:
        """Move a request from prefill to decode."""
        self.prefilling.remove(state)
        self.decoding.append(state)

    def drain(self, state: SchedulingState) -> None:
        """Move a request from decode to those that drain."""
        self.ranked.remove(state)
        self._num_left += 1
        self.draining.add(state)

    def remove(self, state: SchedulingState) -> None:
        """Take the seat of a request, which is in the phase that it leaves."""
        if state.phase is Phase.DRAIN:
            self.draining.remove(state)
            return
        self.ranked.remove(state)
        if state.phase is Phase.PREFILL:
            self.prefilling.remove(state)
        else:
            self._num_left += 1

    def rerank(self, state: SchedulingState, rank: Rank) -> None:
        """Give a request in decode another rank."""
        if rank != state.rank:
            self.ranked.remove(state)
            state.set_rank(rank)
            self.ranked.add(state)

    def serve_last(self, chosen: list[SchedulingState]) -> None:
        """Move these to the end of `decoding`, so that others come first in the next step."""
        served = set(chosen)
        self._decoding = [state for state in self.decoding if state not in served] + chosen

    def check_invariants(self) -> None:
        """Verify order and number.

        Raises:
            InvariantError: what does not hold.
        """
        if self.num_free_seats < 0:
            raise InvariantError(f"{len(self)} requests hold seats, of {self._max_num_seqs}")
        ranked = list(self.ranked)
        if set(ranked) != {*self.prefilling, *self.decoding} or ranked != sorted(ranked, key=_order):
            raise InvariantError("the candidates for a victim are not those in prefill and decode, in order of rank")


class LiveRequests:
    """All requests from their arrival to their end: by id, and each in one queue.

    Read by all parts of the scheduler; `Transitions` alone adds, moves and removes.

    Attributes:
        waiting: Requests without a seat.
        running: Requests with a seat.
    """

    def __init__(self, max_num_seqs: int) -> None:
        self.waiting = WaitingQueue()
        self.running = RunningRequests(max_num_seqs)
        self._by_id: dict[str, SchedulingState] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[SchedulingState]:
        """In order of arrival."""
        return iter(self._by_id.values())

    def __getitem__(self, request_id: str) -> SchedulingState:
        return self._by_id[request_id]

    def get(self, request_id: str) -> SchedulingState | None:
        """The live request of this id, if there is one."""
        return self._by_id.get(request_id)

    def add(self, state: SchedulingState) -> None:
        """Take in a request, which has no queue yet."""
        self._by_id[state.request_id] = state

    def remove(self, state: SchedulingState) -> None:
        """Forget a request, which has left its queue."""
        del self._by_id[state.request_id]

    def check_invariants(self) -> None:
        """Verify that every request stands in the one queue of its phase.

        Raises:
            InvariantError: what does not hold.
        """
        running = self.running
        queues = {
            Phase.WAITING: list(self.waiting),
            Phase.PREFILL: list(running.prefilling),
            Phase.DECODE: running.decoding,
            Phase.DRAIN: list(running.draining),
        }
        queued = [(phase, state) for phase, states in queues.items() for state in states]
        for phase, state in queued:
            if state.phase is not phase or self.get(state.request_id) is not state:
                raise InvariantError(f"{state!r} stands among those in {phase.name}")
        if not len(queued) == len({state for _, state in queued}) == len(self):
            raise InvariantError(f"{len(self)} live requests, {len(queued)} places in queues")
        running.check_invariants()
        for state in self:
            state.check_invariants()
