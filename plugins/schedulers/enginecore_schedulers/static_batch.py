"""Request-level batching: the baseline of continuous batching."""

from enginecore.errors import ConfigurationError
from enginecore.scheduling import Delay, RequestView, SchedulerView, SchedulingPolicy, Split
from enginecore_schedulers.arguments import Count, NotNegative


class StaticBatch(SchedulingPolicy):
    """One batch at a time: the next starts when all have ended.

    How model servers batched before Orca (Yu et al., OSDI 2022), which names it request-level
    scheduling; holding the first request back until the batch is full or some time has passed is
    Clipper's delayed batching (Crankshaw et al., NSDI 2017). The baseline that continuous batching
    is compared with. A preempted request returns in the next batch.

    Args:
        batch_size: Requests in a batch at most; None: as many as there are seats.
        max_delay: Seconds that a batch that is not full is held back for more requests.
    """

    def __init__(self, batch_size: Count | None = None, max_delay: NotNegative = 0.0) -> None:
        self._asked_size = batch_size
        self._max_delay = max_delay
        self._size = 0
        self._num_open = 0  # places left in the batch that is being filled
        self._grew = False  # in the step before

    def start(self, scheduler: SchedulerView) -> None:
        self._size = self._asked_size or scheduler.max_num_seqs
        if self._size > scheduler.max_num_seqs:
            raise ConfigurationError(
                f"scheduler.static_batch.batch_size = {self._size} is above max_num_seqs = {scheduler.max_num_seqs}: "
                "a batch would never be full; lower it or raise max_num_seqs"
            )

    def rank(self, request: RequestView, scheduler: SchedulerView) -> float:
        return request.arrival

    def split(self, scheduler: SchedulerView) -> Split:
        if not scheduler.num_running:
            self._num_open = min(self._size, len(scheduler.waiting))
        elif not self._grew and scheduler.num_decodes == scheduler.num_running:
            self._num_open = 0  # the memory holds no more
        self._grew = False
        most = scheduler.max_num_batched_tokens
        return Split(prefill=most, chunk=most, admit=self._num_open, first="prefill", mix=False)

    def choose(self, scheduler: SchedulerView) -> RequestView | Delay:
        oldest = scheduler.waiting.best()
        full_or_due = oldest.since + self._max_delay
        if not scheduler.num_running and len(scheduler.waiting) < self._size and scheduler.now < full_or_due:
            return Delay(until=full_or_due)
        return oldest

    def admitted(self, request: RequestView, scheduler: SchedulerView) -> None:
        self._num_open -= 1
        self._grew = True
