"""Longest cached prefix first."""

from enginecore.scheduling import RequestView, SchedulerView, SchedulingPolicy
from enginecore_schedulers.arguments import Count


class Lpm(SchedulingPolicy):
    """Longest cached prefix first, with a bounded wait for others.

    SGLang's cache-aware order (Zheng et al., "SGLang: Efficient Execution of Structured Language
    Model Programs", NeurIPS 2024), which for a batch of requests equals a depth-first walk of their
    prefix tree. It pays where the cache is smaller than what waiting requests could share. Of
    equally good ones the oldest goes first.

    Args:
        window: How many of the oldest waiting requests are compared.
        patience: How often the oldest of them is passed over at most. A request is so admitted
            after no more than (its place in the queue) * (patience + 1) admissions.
    """

    def __init__(self, window: Count = 32, patience: Count = 16) -> None:
        self._window = window
        self._patience = patience
        self._oldest_id = ""
        self._num_passed = 0  # admissions that have passed it over

    def rank(self, request: RequestView, scheduler: SchedulerView) -> float:
        return request.arrival

    def choose(self, scheduler: SchedulerView) -> RequestView:
        near = scheduler.waiting.first(self._window)
        if near[0].request_id != self._oldest_id:
            self._oldest_id, self._num_passed = near[0].request_id, 0
        return near[0] if self._num_passed >= self._patience else max(near, key=scheduler.cached_tokens)

    def admitted(self, request: RequestView, scheduler: SchedulerView) -> None:
        if request.request_id != self._oldest_id:
            self._num_passed += 1
