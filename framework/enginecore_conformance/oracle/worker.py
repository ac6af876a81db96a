"""OracleWorker: the rows of requests, the forward pass of a step, and its sampling."""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from enginecore.errors import InvariantError
from enginecore.messages import ModelRunnerOutput, NewRequestData, SchedulerOutput
from enginecore.sampling import SamplingParams
from enginecore_conformance.oracle.memory import SlotMemory
from enginecore_conformance.oracle.model import OracleModel, root_digest


@dataclass(slots=True)
class OracleRow:
    """One request, as the worker knows it.

    Attributes:
        token_ids: Tokens that came with the request, and tokens sampled since.
        block_ids: Block table of the request.
        num_computed_tokens: Tokens whose slots are written.
        num_prompt_tokens: How many tokens are the prompt.
        params: Sampling parameters.
        root: Digest of its cache identity.
        sampled_in: Step that gave its last token; -1 if that one was sent.
    """

    token_ids: list[int]
    block_ids: list[int]
    num_computed_tokens: int
    num_prompt_tokens: int
    params: SamplingParams
    root: int
    sampled_in: int = -1

    @classmethod
    def of(cls, new: NewRequestData) -> "OracleRow":
        """The row of a request that is new to the worker."""
        root = root_digest(new.cache_salt, new.adapter)
        return cls(
            list(new.token_ids),
            list(new.block_ids[0]),
            new.num_computed_tokens,
            new.num_prompt_tokens,
            new.params,
            root,
        )


class Unsampled(NamedTuple):
    """A request between forward pass and sampling.

    Attributes:
        request_id: Id of the request.
        row: Row of the request, which the worker may have forgotten since.
        checksum: Checksum of its context.
    """

    request_id: str
    row: OracleRow
    checksum: int


class OracleWorker:
    """Executes plans, one after another. Its public methods can be called by `collective_rpc`."""

    def __init__(self, model: OracleModel, memory: SlotMemory, *, feeds_tokens: bool) -> None:
        self._model = model
        self._memory = memory
        self._feeds_tokens = feeds_tokens
        self._rows: dict[str, OracleRow] = {}

    def get_request_ids(self) -> list[str]:
        """The requests that it knows."""
        return list(self._rows)

    @property
    def rows(self) -> dict[str, OracleRow]:
        """Row of each request that the worker knows."""
        return self._rows

    def apply(self, plan: SchedulerOutput) -> None:
        """Learn what changed: what is gone first, then what is new, then what grew."""
        for request_id in (*plan.finished_ids, *plan.preempted_ids):
            self._rows.pop(request_id, None)
        for new in plan.new_requests:
            self._rows[new.request_id] = OracleRow.of(new)
        for delta in plan.deltas:
            self._rows[delta.request_id].block_ids += delta.new_block_ids[0]

    def forward(self, plan: SchedulerOutput, last_returned: int) -> list[Unsampled]:
        """Compute the plan's tokens; return what is to be sampled: requests whose last known token was among them.

        `last_returned` is the step whose tokens had come back when the plan was submitted.
        """
        ended = []
        for request_id, num_tokens in plan.num_scheduled_tokens.items():
            row = self._rows[request_id]
            end = row.num_computed_tokens + num_tokens
            self._check_known(request_id, row, end, last_returned)
            self._compute(request_id, row, end)
            row.num_computed_tokens = end
            if end == len(row.token_ids):
                ended.append((request_id, row))
        # read when all is written, and kept: later steps may write to these blocks before this one is sampled
        return [Unsampled(request_id, row, self._checksum(request_id, row)) for request_id, row in ended]

    def sample(self, step: int, unsampled: Iterable[Unsampled]) -> ModelRunnerOutput:
        """The next token of each request. Those that are gone by now are sampled too."""
        output = ModelRunnerOutput(step=step, request_ids=[], sampled_token_ids=[], logprobs={})
        for request_id, row, checksum in unsampled:
            token = self._model.token_of(checksum, row.params, len(row.token_ids) - row.num_prompt_tokens)
            row.token_ids.append(token)
            row.sampled_in = step
            output.request_ids.append(request_id)
            output.sampled_token_ids.append([token])
            if row.params.logprobs is not None:
                output.logprobs[request_id] = [self._model.logprobs(token, row.params)]
        return output

    def _checksum(self, request_id: str, row: OracleRow) -> int:
        """Of all slots that the request's tokens were computed into: what its next token is made from."""
        return zlib.crc32(self._memory.read(row.block_ids, row.num_computed_tokens))

    def _compute(self, request_id: str, row: OracleRow, end: int) -> None:
        start = row.num_computed_tokens
        self._memory.write(row.block_ids, start, row.token_ids[start:end], row.root)

    def _check_known(self, request_id: str, row: OracleRow, end: int, last_returned: int) -> None:
        if end > len(row.token_ids):
            raise InvariantError(
                f"request {request_id!r}: position {end - 1} is scheduled, but only {len(row.token_ids)} of its tokens "
                "are known"
            )
        if not self._feeds_tokens and end == len(row.token_ids) and row.sampled_in > last_returned:
            raise InvariantError(
                f"request {request_id!r}: position {end - 1} is scheduled before its token, sampled in step "
                f"{row.sampled_in}, has come back; this executor does not feed tokens"
            )
