"""InputBatch: a rank's requests in arrays by slot, from which the flat batch of a step is made.

Arrays are allocated once; a step of pure decodes is a handful of numpy calls, whatever the number
of requests.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from enginecore.errors import InvalidRequestError, StepError
from enginecore.messages import NewRequestData, RequestDelta
from enginecore_torch.attention.interface import AttentionBatch
from enginecore_torch.sampler import SamplingBatch


@dataclass(frozen=True, slots=True)
class StepInputs:
    """One step, flattened.

    Attributes:
        slots: int64 [requests]: which slot each request of the batch has.
        counts: int64 [requests]: tokens computed for each.
        token_ids: int64 [tokens].
        positions: int64 [tokens].
        attention: The same batch for attention.
        sampled_ids: Requests whose last known token is among these, in order.
        sampled_slots: int64 [sampled].
        wanted: int64 [sampled]: their last tokens' places in the batch.
    """

    slots: np.ndarray
    counts: np.ndarray
    token_ids: np.ndarray
    positions: np.ndarray
    attention: AttentionBatch
    sampled_ids: list[str]
    sampled_slots: np.ndarray
    wanted: np.ndarray


@dataclass(frozen=True, slots=True)
class SampledRows:
    """Where a step's sampled tokens belong.

    A slot that has another request when the tokens come takes none.

    Attributes:
        slots: int64 [sampled].
        places: int64 [sampled]: of the new token in each request.
        generations: int64 [sampled]: how often each slot had been given out then.
    """

    slots: np.ndarray
    places: np.ndarray
    generations: np.ndarray


class InputBatch:
    """Slots of requests: tokens, block tables, progress, and sampling parameters."""

    def __init__(self, max_num_seqs: int, max_model_len: int, block_size: int, eos_token_ids: Iterable[int]) -> None:
        self._block_size = block_size
        self._max_model_len = max_model_len
        self._eos_token_ids = tuple(eos_token_ids)
        self._slot_of: dict[str, int] = {}
        self._free_slots = list(range(max_num_seqs - 1, -1, -1))
        # a token sampled at the very end of the context is still stored
        self._token_ids = np.zeros((max_num_seqs, max_model_len + 1), np.int32)
        self._block_tables = np.zeros((max_num_seqs, self.blocks_for(max_model_len)), np.int32)
        self._num_blocks, self._num_computed, self._num_tokens, self._num_prompt, self._generations = (
            np.zeros(max_num_seqs, np.int64) for _ in range(5)
        )
        self._temperature, self._top_p = (np.zeros(max_num_seqs, np.float32) for _ in range(2))
        self._top_k, self._min_tokens, self._num_logprobs = (np.zeros(max_num_seqs, np.int64) for _ in range(3))
        self._seed = np.zeros(max_num_seqs, np.uint64)
        self._plain = np.zeros(max_num_seqs, np.bool_)  # greedy, and nothing else is asked for
        self._ending: list[list[int]] = [[] for _ in range(max_num_seqs)]

    def __len__(self) -> int:
        return len(self._slot_of)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._slot_of

    # -- coming and going --------------------------------------------------------------------------

    def add(self, request: NewRequestData) -> None:
        """Take a request in.

        Raises:
            InvalidRequestError: it asks for what is not supported, or is longer than the context;
                nothing is changed.
            StepError: its id is known, or there is no slot: the plan is wrong.
        """
        self._check(request)
        if request.request_id in self._slot_of:
            raise StepError(f"request {request.request_id!r} is new in this plan, but the worker knows it already")
        if not self._free_slots:
            raise StepError(f"the plan holds more than max_num_seqs = {len(self._ending)} requests")
        slot = self._slot_of[request.request_id] = self._free_slots.pop()
        self._generations[slot] += 1
        self._token_ids[slot, : len(request.token_ids)] = request.token_ids
        self._num_tokens[slot] = len(request.token_ids)
        self._num_prompt[slot] = request.num_prompt_tokens
        self._num_computed[slot] = request.num_computed_tokens
        self._num_blocks[slot] = 0
        self._append_blocks(slot, request.block_ids[0])
        self._set_params(slot, request)

    def _check(self, request: NewRequestData) -> None:
        if request.adapter is not None:
            raise InvalidRequestError(f"adapter {request.adapter!r}: adapters are not supported by this executor")
        if len(request.token_ids) > self._max_model_len:
            raise InvalidRequestError(
                f"the request has {len(request.token_ids)} tokens, more than max_model_len = {self._max_model_len}"
            )

    def _set_params(self, slot: int, request: NewRequestData) -> None:
        params = request.params
        self._temperature[slot], self._top_p[slot] = params.temperature, params.top_p
        self._top_k[slot], self._min_tokens[slot] = params.top_k, params.min_tokens
        self._num_logprobs[slot] = -1 if params.logprobs is None else params.logprobs
        self._seed[slot] = np.uint64((params.seed or 0) & 0xFFFFFFFFFFFFFFFF)
        self._plain[slot] = params.greedy and params.logprobs is None and not params.min_tokens
        self._ending[slot] = [*params.stop_token_ids, *(() if params.ignore_eos else self._eos_token_ids)]

    def remove(self, request_id: str) -> None:
        """Forget a request. An id that is not known is left alone: it may have been refused."""
        slot = self._slot_of.pop(request_id, None)
        if slot is not None:
            self._free_slots.append(slot)

    def update(self, delta: RequestDelta) -> None:
        """Apply what changed.

        Raises:
            StepError: the request is unknown, or its tokens were rolled back.
        """
        slot = self._slot(delta.request_id)
        if delta.num_computed_tokens != self._num_computed[slot]:
            raise StepError(
                f"the plan says that {delta.num_computed_tokens} tokens of request {delta.request_id!r} were computed, "
                f"the worker computed {self._num_computed[slot]}; taking tokens back is not supported"
            )
        self._append_blocks(slot, delta.new_block_ids[0])

    def _append_blocks(self, slot: int, block_ids: list[int]) -> None:
        first = self._num_blocks[slot]
        if first + len(block_ids) > self._block_tables.shape[1]:
            raise StepError(
                f"a request got {first + len(block_ids)} blocks, but max_model_len = {self._max_model_len} "
                f"needs no more than {self._block_tables.shape[1]}"
            )
        self._block_tables[slot, first : first + len(block_ids)] = block_ids
        self._num_blocks[slot] += len(block_ids)

    def _slot(self, request_id: str) -> int:
        if request_id not in self._slot_of:
            raise StepError(f"the plan names request {request_id!r}, which the worker does not know")
        return self._slot_of[request_id]

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-num_tokens // self._block_size)

    # -- one step ----------------------------------------------------------------------------------

    def prepare(self, num_scheduled_tokens: Mapping[str, int]) -> StepInputs:
        """Flatten a step. At least one token must be scheduled.

        Raises:
            StepError: a request is unknown, has fewer tokens, or has no blocks for them.
        """
        request_ids = list(num_scheduled_tokens)
        slots = np.array([self._slot(request_id) for request_id in request_ids])
        counts = np.fromiter(num_scheduled_tokens.values(), np.int64, len(slots))
        computed = self._num_computed[slots]
        lengths = computed + counts
        self._check_lengths(request_ids, slots, lengths)
        starts = np.zeros(len(slots) + 1, np.int64)
        np.cumsum(counts, out=starts[1:])
        positions = np.arange(starts[-1]) + np.repeat(computed - starts[:-1], counts)
        attention = AttentionBatch(
            query_starts=starts.astype(np.int32),
            seq_lens=lengths.astype(np.int32),
            block_tables=self._block_tables[slots, : self.blocks_for(int(lengths.max()))],
        )
        sampled = np.flatnonzero(lengths == self._num_tokens[slots])
        return StepInputs(
            slots=slots,
            counts=counts,
            token_ids=self._token_ids[np.repeat(slots, counts), positions].astype(np.int64),
            positions=positions,
            attention=attention,
            sampled_ids=[request_ids[row] for row in sampled.tolist()],
            sampled_slots=slots[sampled],
            wanted=starts[1:][sampled] - 1,
        )

    def _check_lengths(self, request_ids: list[str], slots: np.ndarray, lengths: np.ndarray) -> None:
        known, held = self._num_tokens[slots], self._num_blocks[slots] * self._block_size
        for row in np.flatnonzero((lengths > known) | (lengths > held)).tolist():
            raise StepError(
                f"the plan computes request {request_ids[row]!r} up to token {lengths[row]}, "
                f"but it has {known[row]} tokens, and blocks for {held[row]}"
            )

    def advance(self, inputs: StepInputs) -> None:
        """The step's tokens are computed."""
        self._num_computed[inputs.slots] += inputs.counts

    def sampling(self, inputs: StepInputs) -> SamplingBatch | None:
        """How the sampled rows are chosen; None if all are plainly greedy."""
        slots = inputs.sampled_slots
        if self._plain[slots].all():
            return None
        index = self._num_tokens[slots] - self._num_prompt[slots]
        early = np.flatnonzero(index < self._min_tokens[slots]).tolist()
        return SamplingBatch(
            temperature=self._temperature[slots],
            top_k=self._top_k[slots],
            top_p=self._top_p[slots],
            seed=self._seed[slots],
            index=index.astype(np.uint64),
            banned={row: ending for row in early if (ending := self._ending[slots[row]])},
            num_logprobs=self._num_logprobs[slots],
        )

    def grow(self, inputs: StepInputs) -> SampledRows:
        """Every sampled request is longer by one token, whose value `fill` gives."""
        slots = inputs.sampled_slots
        rows = SampledRows(slots, self._num_tokens[slots], self._generations[slots])
        self._num_tokens[slots] += 1
        return rows

    def fill(self, rows: SampledRows, token_ids: list[int]) -> None:
        """Store the sampled tokens: they are inputs of steps to come."""
        held = self._generations[rows.slots] == rows.generations
        self._token_ids[rows.slots[held], rows.places[held]] = np.array(token_ids, np.int32)[held]
