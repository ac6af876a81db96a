"""From a workload's requests to the engine core's."""

from random import Random

from enginecore.core import EngineCore
from enginecore.lab.workload import Workload, WorkloadRequest
from enginecore.messages import EngineCoreRequest, EngineInfo
from enginecore.sampling import SamplingParams

Ready = tuple[EngineCoreRequest, list[bytes] | None]


class Sender:
    """Makes requests and adds them. In real time they are made beforehand, so that making them delays nobody."""

    def __init__(self, core: EngineCore, workload: Workload, *, reveal_lengths: bool, beforehand: bool) -> None:
        self._core = core
        self._workload = workload
        self._reveal_lengths = reveal_lengths
        self._longest_output = max(request.num_output_tokens for request in workload.requests)
        self._model_free = core.executor.capabilities.model_free
        self._ready = {each.request_id: self._make(each) for each in workload.requests} if beforehand else {}

    def __call__(self, request: WorkloadRequest, at: float) -> None:
        """Add it as one that arrives at `at` on the engine's clock, whenever that was.

        Raises:
            InvalidRequestError: the engine core refuses it.
        """
        made, _ = self._ready.pop(request.request_id, None) or self._make(request)
        made.arrival_time = at
        made.deadline = None if request.ttft_slo is None else at + request.ttft_slo
        self._core.add_request(made)

    def _make(self, request: WorkloadRequest) -> Ready:
        return to_engine_request(
            request,
            self._workload,
            self._core.info,
            model_free=self._model_free,
            reveal_lengths=self._reveal_lengths,
            longest_output=self._longest_output,
        )


def to_engine_request(
    request: WorkloadRequest,
    workload: Workload,
    info: EngineInfo,
    *,
    model_free: bool,
    reveal_lengths: bool,
    longest_output: int,
) -> Ready:
    """Until the workloads package is there: tokens drawn by block."""
    size = workload.block_size or 1
    names = [f"{i}" for i in request.hash_ids] or [
        f"{request.request_id}/{i}" for i in range(-(-request.num_prompt_tokens // size))
    ]
    tokens: list[int] = []
    for name in names:
        random = Random(name)
        tokens += [random.randrange(info.vocab_size) for _ in range(size)]
    n = request.num_output_tokens
    params = SamplingParams(temperature=0, ignore_eos=True, max_tokens=n)
    return EngineCoreRequest(
        request_id=request.request_id,
        prompt_token_ids=tokens[: request.num_prompt_tokens],
        params=params,
        priority=request.priority,
        tenant=request.tenant,
    ), None
