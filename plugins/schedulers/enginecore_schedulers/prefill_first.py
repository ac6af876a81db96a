"""Prompts before decodes: the baseline of chunked prefill."""

from enginecore.scheduling import RequestView, SchedulerView, SchedulingPolicy, Split


class PrefillFirst(SchedulingPolicy):
    """Whole prompts first; decodes stall while prompts arrive.

    Iteration-level scheduling as in Orca (Yu et al., OSDI 2022) with the order of the first vLLM
    (Kwon et al., SOSP 2023). First tokens come as early as can be, and running requests pay for it:
    the baseline that decode-first scheduling with chunks of prompts, `fcfs`, is compared with. A
    prompt longer than a step takes several.
    """

    def __init__(self) -> None:
        self._num_tokens = 0  # of prompts admitted in this step

    def rank(self, request: RequestView, scheduler: SchedulerView) -> float:
        return request.arrival

    def split(self, scheduler: SchedulerView) -> Split:
        self._num_tokens = 0
        most = scheduler.max_num_batched_tokens
        return Split(prefill=most, chunk=most, admit=most, first="prefill", mix=False)

    def choose(self, scheduler: SchedulerView) -> RequestView | None:
        oldest = scheduler.waiting.best()
        tokens = self._num_tokens + self._to_compute(oldest, scheduler)
        return oldest if not self._num_tokens or tokens <= scheduler.max_num_batched_tokens else None

    def admitted(self, request: RequestView, scheduler: SchedulerView) -> None:
        self._num_tokens += self._to_compute(request, scheduler)

    @staticmethod
    def _to_compute(request: RequestView, scheduler: SchedulerView) -> int:
        return request.num_prompt_tokens + request.num_output_tokens - scheduler.cached_tokens(request)
