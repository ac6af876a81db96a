"""Sends a workload's requests to an engine core."""

from enginecore.core import EngineCore
from enginecore.messages import EngineCoreRequest
from enginecore.request_checks import check_prompt_length, naming_request
from enginecore_lab.workload import Workload, WorkloadRequest
from enginecore_lab.workloads.content import longest_output, to_engine_request

Ready = tuple[EngineCoreRequest, list[bytes] | None]


class Sender:
    """Makes requests and adds them. In real time they are made beforehand, so that making them delays no request."""

    def __init__(self, core: EngineCore, workload: Workload, *, reveal_lengths: bool, beforehand: bool) -> None:
        self._core = core
        self._workload = workload
        self._reveal_lengths = reveal_lengths
        self._longest_output = longest_output(workload)
        self._model_free = core.executor.capabilities.model_free
        made = [each for each in workload.requests if beforehand and self._fits(each)]
        self._ready = {each.request_id: self._make(each) for each in made}

    def __call__(self, request: WorkloadRequest, at: float | None) -> None:
        """Add it as one that arrives at `at` on the engine's clock, whenever that was; None: now, with no deadline.

        Raises:
            InvalidRequestError: the engine core refuses it.
        """
        with naming_request(request.request_id):
            check_prompt_length(request.num_prompt_tokens, request.num_output_tokens, self._core.info)
        ready = self._ready.pop(request.request_id, None)
        made, block_hashes = self._make(request) if ready is None else ready
        made.arrival_time = at
        made.deadline = None if at is None or request.ttft_slo is None else at + request.ttft_slo
        self._core.add_request(made, block_hashes)

    def _fits(self, request: WorkloadRequest) -> bool:
        """Whether there is a point in making it: what a trace says of a prompt's length may be more than memory is."""
        return request.num_prompt_tokens < self._core.info.max_model_len

    def _make(self, request: WorkloadRequest) -> Ready:
        return to_engine_request(
            request,
            self._workload,
            self._core.info,
            model_free=self._model_free,
            reveal_lengths=self._reveal_lengths,
            longest_output=self._longest_output,
        )
