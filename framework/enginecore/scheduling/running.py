"""Requests that hold a seat and blocks."""

from collections.abc import Iterator

from enginecore.scheduling.queues import RankedList
from enginecore.scheduling.request_state import Phase, RequestState


class RunningSet:
    """Seats: requests in prefill, in decode, and those that only wait for their last token.

    Attributes:
        prefilling: In order of rank; known tokens are left to schedule.
        decoding: In the order in which they are to be served.
        draining: Everything is scheduled.
        ranked: Those in prefill and decode, best rank first: whom a victim is chosen from.
    """

    def __init__(self) -> None:
        self.prefilling = RankedList()
        self.decoding: list[RequestState] = []
        self.draining: set[RequestState] = set()
        self.ranked = RankedList()
        self._num_unswept = 0  # have left `decoding`, and still stand there

    def __len__(self) -> int:
        return len(self.ranked) + len(self.draining)

    def __iter__(self) -> Iterator[RequestState]:
        yield from self.ranked
        yield from self.draining

    @property
    def num_decodes(self) -> int:
        """How many are past their prompt."""
        return len(self.decoding) - self._num_unswept

    def seat(self, state: RequestState) -> None:
        """It starts with its prompt."""
        state.phase = Phase.PREFILL
        self.prefilling.add(state)
        self.ranked.add(state)

    def to_decode(self, state: RequestState) -> None:
        """Its known tokens are all scheduled."""
        self.prefilling.remove(state)
        state.phase = Phase.DECODE
        self.decoding.append(state)

    def to_drain(self, state: RequestState) -> None:
        """All its tokens are scheduled. `decoding` is swept by `settle`."""
        self.ranked.remove(state)
        self._num_unswept += 1
        state.phase = Phase.DRAIN
        self.draining.add(state)

    def rerank(self, state: RequestState, rank: object) -> None:
        """Give it another rank."""
        if rank != state.rank:
            self.ranked.remove(state)
            state.set_rank(rank)
            self.ranked.add(state)

    def remove(self, state: RequestState) -> None:
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

    def serve_last(self, chosen: list[RequestState]) -> None:
        """Move these to the end of `decoding`, so that others come first the next time."""
        served = set(chosen)
        self.decoding = [state for state in self.decoding if state not in served] + chosen
