"""ModelRunner: executes the steps of one rank, plan in, sampled tokens out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from enginecore.errors import InvalidRequestError, StepError
from enginecore.messages import ModelRunnerOutput, NewRequestData, PositionLogprobs, SchedulerOutput
from enginecore.sampling import SamplingParams
from enginecore_torch.device import memory_usage
from enginecore_torch.input_batch import InputBatch, SampledRows, StepInputs
from enginecore_torch.models.interface import Model
from enginecore_torch.parallel.communicator import Communicator
from enginecore_torch.parallel.layout import Shard
from enginecore_torch.profiling import Profiler
from enginecore_torch.rank import is_deferred
from enginecore_torch.sampler import Sampled, SamplingBatch, sample

BAD_LOGITS = "the model gave no usable logits for this request (not a number, or every token is banned)"


REMOTE_METHODS = ("attention_backend", "memory_usage", "num_requests", "start_profile", "stop_profile")
"""What `collective_rpc` reaches."""


@dataclass(frozen=True, slots=True)
class UnsampledStep:
    """A step after its forward pass, with all that sampling needs, even of requests that end.

    Attributes:
        step: Number of the plan.
        errors: Messages by id of requests that were refused.
        sampled_ids: Requests whose next token is sampled, in order of the rows.
        hidden: [rows, hidden]: their hidden states.
        sampling: How the rows are sampled; None: all are plainly greedy.
        rows: Where their tokens belong.
    """

    step: int
    errors: dict[str, str]
    sampled_ids: list[str]
    hidden: torch.Tensor
    sampling: SamplingBatch | None
    rows: SampledRows


class ModelRunner:
    """One rank's share of the model, its KV cache, and its requests.

    All ranks run the same plans in the same order.
    """

    def __init__(
        self,
        model: Model,
        batch: InputBatch,
        device: torch.device,
        *,
        shard: Shard,
        communicator: Communicator,
    ) -> None:
        self._model = model
        self._attention = model.attention
        self._batch = batch
        self._device = device
        self._shard = shard
        self._communicator = communicator
        self._kv_caches: list[Any] = []
        self._num_blocks = 0
        # by step: on the last stage, steps that wait to be sampled
        self._unsampled: dict[int, UnsampledStep | ModelRunnerOutput] = {}
        # by step: on other stages, rows whose tokens have not come
        self._unfilled: dict[int, SampledRows] = {}
        self._profiler = Profiler(shard.rank, device)

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
        self._num_blocks = num_blocks
        self._kv_caches.clear()
        self._kv_caches.extend(self._attention.new_kv_cache(num_blocks) for _ in self._model.layer_names)

    def num_requests(self) -> int:
        """Requests that the worker knows."""
        return len(self._batch)

    def memory_usage(self) -> dict[str, int]:
        """Bytes of this rank's process, as `device.memory_usage`, and of its KV cache."""
        layers = len(self._kv_caches)
        return {**memory_usage(self._device), "kv_cache": self._num_blocks * layers * self.page_size_bytes}

    def attention_backend(self) -> str:
        """Name of the attention backend in use."""
        return self._attention.name

    def start_profile(self, folder: str) -> None:
        """Begin to record; see `Profiler`."""
        self._profiler.start(folder)

    def stop_profile(self) -> str:
        """Write what was recorded; the path of the file."""
        return self._profiler.stop()

    def shutdown(self) -> None:
        """Release what outlives an object that is merely dropped."""
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
        self.execute_model(SchedulerOutput(step=-1, new_requests=requests, num_scheduled_tokens=counts))
        self.execute_model(SchedulerOutput(step=-1, finished_ids=list(counts)))
        self._unfilled.clear()

    def fill_tokens(self, step: int, token_ids: list[int]) -> None:
        """Take the tokens that the last stage sampled in a step, in order of its rows.

        Called before any step that computes them.
        """
        if (rows := self._unfilled.pop(step, None)) is not None:
            self._batch.fill(rows, token_ids)

    @torch.inference_mode()
    def execute_model(self, scheduled: SchedulerOutput) -> ModelRunnerOutput | None:
        """One step. None: another rank has the output, or the step waits for `sample_tokens`.

        Raises:
            StepError: the plan contradicts what the worker knows.
        """
        done = self._run_forward(scheduled)
        if done is not None and is_deferred(scheduled):
            self._unsampled[scheduled.step] = done
            return None
        return self._sample_step(done) if isinstance(done, UnsampledStep) else done

    @torch.inference_mode()
    def sample_tokens(self, step: int) -> ModelRunnerOutput | None:
        """Sample a step whose plan deferred it. None: another rank has the output.

        Raises:
            StepError: no such step waits to be sampled.
        """
        if not self._shard.is_last:
            return None
        if (done := self._unsampled.pop(step, None)) is None:
            raise StepError(f"step {step} does not wait to be sampled; waiting are {list(self._unsampled)}")
        return self._sample_step(done) if isinstance(done, UnsampledStep) else done

    def _run_forward(self, scheduled: SchedulerOutput) -> UnsampledStep | ModelRunnerOutput | None:
        """Update the requests and run the forward pass.

        An output: there was nothing to compute. None: the next stage goes on.
        """
        errors = self._update_requests(scheduled)
        counts = {name: n for name, n in scheduled.num_scheduled_tokens.items() if name not in errors}
        if not counts:
            return ModelRunnerOutput(step=scheduled.step, errors=errors)
        inputs = self._batch.prepare(counts)
        hidden = self._forward(inputs)
        self._batch.advance(inputs)
        if hidden is None:
            self._unfilled[scheduled.step] = self._batch.grow(inputs)
            return None
        sampling = self._batch.sampling(inputs)
        return UnsampledStep(scheduled.step, errors, inputs.sampled_ids, hidden, sampling, self._batch.grow(inputs))

    def _sample_step(self, done: UnsampledStep) -> ModelRunnerOutput | None:
        sampled = self._sample(done)
        if self._shard.is_first:
            self._batch.fill(done.rows, self._shared(sampled, len(done.hidden)))
        return None if sampled is None else _answer(done, sampled)

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

    def _forward(self, inputs: StepInputs) -> torch.Tensor | None:
        """Hidden states of the sampled rows; None if they are in another stage."""
        if not self._kv_caches:
            raise StepError("a step came before the KV cache was initialised")
        hidden = self._model.forward(
            self._residual(inputs),
            self._tensor(inputs.positions),
            self._kv_caches,
            self._attention.prepare(inputs.attention),
            self._tensor(inputs.wanted),
        )
        if self._shard.is_last:
            return hidden
        self._communicator.send(hidden)
        return None

    def _residual(self, inputs: StepInputs) -> torch.Tensor:
        if self._shard.is_first:
            return self._model.embed(self._tensor(inputs.token_ids))
        residual = self._model.new_hidden(len(inputs.token_ids))
        self._communicator.receive(residual)
        return residual

    def _sample(self, done: UnsampledStep) -> Sampled | None:
        """The chosen tokens, on the first rank of the last stage; None on its others."""
        if not len(done.hidden):
            return Sampled([], [], {}) if self._shard.leads else None
        logits, batch = self._model.compute_logits(done.hidden), done.sampling
        if not self._shard.is_shared:
            return sample(logits, batch)
        if batch is None:
            return self._most_likely(logits)
        whole = self._communicator.gather(logits, [len(rows) for rows in self._shard.all_vocab])
        return None if whole is None else sample(whole, batch)

    def _most_likely(self, logits: torch.Tensor) -> Sampled | None:
        """Greedy over all ranks of the stage: each sends its best, not its logits."""
        values, tokens = logits.max(-1)
        best = torch.stack((values.double(), (tokens + self._shard.vocab.start).double()), dim=-1)
        every = self._communicator.gather(best, [2] * len(self._shard.all_vocab))
        if every is None:
            return None
        chosen = sample(every[:, 0::2], None)
        token_ids = every[:, 1::2].gather(-1, torch.tensor(chosen.token_ids, device=every.device).unsqueeze(-1))
        return Sampled(token_ids.squeeze(-1).long().tolist(), chosen.bad_rows, {})

    def _shared(self, sampled: Sampled | None, count: int) -> list[int]:
        """What one rank of the stage has sampled, on all of them."""
        if count and self._shard.is_shared:
            token_ids = torch.tensor(sampled.token_ids if sampled else [0] * count, device=self._device)
            self._communicator.broadcast(token_ids)
            return [int(token) for token in token_ids]
        return sampled.token_ids if sampled else []

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device, non_blocking=True)


def _answer(done: UnsampledStep, sampled: Sampled) -> ModelRunnerOutput:
    ids, errors = done.sampled_ids, dict(done.errors)
    logprobs: dict[str, list[PositionLogprobs]] = {ids[row]: [entry] for row, entry in sampled.logprobs.items()}
    tokens = [[token] for token in sampled.token_ids]
    for row in sampled.bad_rows:
        errors[ids[row]] = BAD_LOGITS
        tokens[row] = []
    return ModelRunnerOutput(
        step=done.step, request_ids=ids, sampled_token_ids=tokens, logprobs=logprobs, errors=errors
    )
