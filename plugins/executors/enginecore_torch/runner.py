"""Runs steps: plan in, sampled tokens out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from enginecore.errors import InvalidRequestError, StepError
from enginecore.messages import ModelRunnerOutput, NewRequestData, PositionLogprobs, SchedulerOutput
from enginecore.sampling import SamplingParams
from enginecore_torch.architectures import Model
from enginecore_torch.attention import AttentionBackend
from enginecore_torch.input_batch import InputBatch, StepInputs
from enginecore_torch.profiling import Profiler
from enginecore_torch.sampler import Sampled, sample

BAD_LOGITS = "the model gave no usable logits for this request (not a number, or every token is banned)"


REMOTE_METHODS = ("attention_backend", "num_requests", "start_profile", "stop_profile")
"""What `collective_rpc` reaches."""


class ModelRunner:
    """One rank's model, KV cache and requests."""

    def __init__(self, model: Model, attention: AttentionBackend, batch: InputBatch, device: torch.device) -> None:
        self._model = model
        self._attention = attention
        self._batch = batch
        self._device = device
        self._kv_caches: list[Any] = []
        self._profiler = Profiler(rank=0, device=device)

    @property
    def layer_names(self) -> tuple[str, ...]:
        """Names of the layers that have a KV cache, in order."""
        return self._model.layer_names

    @property
    def page_size_bytes(self) -> int:
        """Bytes of one block in one layer."""
        return self._attention.page_size_bytes

    def initialize_kv_cache(self, num_blocks: int) -> None:
        """Allocate `num_blocks` blocks per layer, instead of what there was."""
        self._kv_caches.clear()
        self._kv_caches.extend(self._attention.new_kv_cache(num_blocks) for _ in self._model.layer_names)

    def num_requests(self) -> int:
        """Requests that the worker knows."""
        return len(self._batch)

    def attention_backend(self) -> str:
        """Name of the attention backend in use."""
        return self._attention.name

    def start_profile(self, folder: str) -> None:
        """Begin to record; see `Profiler`."""
        self._profiler.start(folder)

    def stop_profile(self) -> str:
        """Write what was recorded; the path of the file."""
        return self._profiler.stop()

    def close(self) -> None:
        """End what outlives an object that is merely dropped."""
        self._profiler.close()

    @torch.inference_mode()
    def dummy_run(self, lengths: Sequence[int]) -> None:
        """Run prompts of these lengths through the model and forget them. Overwrites block 0."""
        blocks = self._batch.blocks_for(max(lengths)) * [0]
        requests = [
            NewRequestData(
                request_id=f"dummy-{number}",
                token_ids=[0] * length,
                num_prompt_tokens=length,
                params=SamplingParams(temperature=0),
                block_ids=(blocks,),
            )
            for number, length in enumerate(lengths)
        ]
        counts = {request.request_id: len(request.token_ids) for request in requests}
        self.execute(SchedulerOutput(step=-1, new_requests=requests, num_scheduled_tokens=counts))
        self.execute(SchedulerOutput(step=-1, finished_ids=list(counts)))

    @torch.inference_mode()
    def execute(self, scheduled: SchedulerOutput) -> ModelRunnerOutput:
        """One step.

        Raises:
            StepError: the plan contradicts what the worker knows.
        """
        errors = self._update_requests(scheduled)
        counts = {name: n for name, n in scheduled.num_scheduled_tokens.items() if name not in errors}
        if not counts:
            return ModelRunnerOutput(step=scheduled.step, errors=errors)
        inputs = self._batch.prepare(counts)
        hidden = self._forward(inputs)
        self._batch.advance(inputs)
        sampled = self._sample(inputs, hidden)
        return _answer(scheduled.step, inputs, sampled, errors)

    def _update_requests(self, scheduled: SchedulerOutput) -> dict[str, str]:
        """What is gone applies before what is new. Returns an error per request that is refused."""
        for request_id in (*scheduled.finished_ids, *scheduled.preempted_ids):
            self._batch.remove(request_id)
        errors = {}
        for request in scheduled.new_requests:
            try:
                self._batch.add(request)
            except InvalidRequestError as error:
                errors[request.request_id] = str(error)
        for delta in scheduled.deltas:
            self._batch.update(delta)
        return errors

    def _forward(self, inputs: StepInputs) -> torch.Tensor:
        if not self._kv_caches:
            raise StepError("a step came before the KV cache was initialised")
        return self._model.forward(
            self._tensor(inputs.token_ids),
            self._tensor(inputs.positions),
            self._kv_caches,
            self._attention.prepare(inputs.attention),
            self._tensor(inputs.wanted),
        )

    def _sample(self, inputs: StepInputs, hidden: torch.Tensor) -> Sampled:
        if not len(hidden):
            return Sampled([], [], {})
        sampled = sample(self._model.compute_logits(hidden), self._batch.sampling(inputs))
        self._batch.append(inputs, sampled.token_ids)
        return sampled

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device, non_blocking=True)


def _answer(step: int, inputs: StepInputs, sampled: Sampled, errors: dict[str, str]) -> ModelRunnerOutput:
    ids = inputs.sampled_ids
    logprobs: dict[str, list[PositionLogprobs]] = {ids[row]: [entry] for row, entry in sampled.logprobs.items()}
    tokens = [[token] for token in sampled.token_ids]
    for row in sampled.bad_rows:
        errors[ids[row]] = BAD_LOGITS
        tokens[row] = []
    return ModelRunnerOutput(step=step, request_ids=ids, sampled_token_ids=tokens, logprobs=logprobs, errors=errors)
