"""Request in the engine core: its tokens, its two cursors, and the rule for when it ends."""

import enum
from collections.abc import Collection
from typing import NamedTuple

from enginecore.messages import EngineCoreRequest, FinishReason
from enginecore.sampling import SamplingParams


class RequestStatus(enum.IntEnum):
    """Status of a request. Only the scheduler changes it."""

    WAITING = 0
    RUNNING = 1
    FINISHED = 2


class CacheIdentity(NamedTuple):
    """Identity of a request's cached content: equal where two requests may share KV blocks."""

    salt: str | None
    adapter: str | None


class Request:
    """One request, owned by the scheduler.

    Two cursors say what its KV cache holds: planning a step advances `num_scheduled_tokens`, a step
    that returns advances `num_computed_tokens`. What lies between is in flight. A position at or
    past `num_tokens` holds a token that is not known yet: it may be scheduled only if the executor
    feeds sampled tokens on its own side.

    Attributes:
        token_ids: Prompt, then accepted output tokens. Grown by `append` alone.
        num_scheduled_tokens: Tokens computed or being computed by a submitted step.
        num_computed_tokens: Tokens whose KV is written.
        num_late_tokens: Sampled tokens that were in flight when it was last preempted and have not
            arrived yet.
        num_cached_tokens: Prompt tokens found in the prefix cache at its first admission; -1 before
            it.
        num_preemptions: How often it was preempted.
        max_total_tokens: The request ends with reason LENGTH at this many tokens, prompt included.
        block_hashes: Hashes of its full blocks so far; extended and read by the KV cache manager.
        has_ready_hashes: The hashes came with the request, whose tokens have no content. Blocks
            behind the last hash are neither looked up nor published.
    """

    __slots__ = (
        "_eos_token_ids", "_min_total_tokens", "_stop_token_ids", "adapter", "arrival_number", "arrival_time",
        "block_hashes", "cache_salt", "client_index", "deadline", "finish_reason", "has_ready_hashes", "hints",
        "max_total_tokens", "num_cached_tokens", "num_computed_tokens", "num_late_tokens", "num_preemptions",
        "num_prompt_tokens", "num_scheduled_tokens", "params", "priority", "request_id", "skip_prefix_cache", "status",
        "stop_reason", "tenant", "token_ids",
    )  # fmt: skip

    def __init__(
        self,
        request: EngineCoreRequest,
        params: SamplingParams,
        *,
        arrival_number: int,
        arrival_time: float,
        max_model_len: int,
        eos_token_ids: Collection[int] = (),
        block_hashes: list[bytes] | None = None,
    ) -> None:
        self.request_id = request.request_id
        self.client_index = request.client_index
        self.params = params
        self.arrival_number = arrival_number
        self.arrival_time = arrival_time
        self.priority, self.tenant, self.deadline, self.hints = (
            request.priority, request.tenant, request.deadline, request.hints,
        )  # fmt: skip
        self.cache_salt, self.adapter, self.skip_prefix_cache = (
            request.cache_salt, request.adapter, request.skip_prefix_cache,
        )  # fmt: skip
        self.token_ids = list(request.prompt_token_ids)
        self.num_prompt_tokens = len(self.token_ids)
        asked = max_model_len if params.max_tokens is None else self.num_prompt_tokens + params.max_tokens
        self.max_total_tokens = min(asked, max_model_len)
        self._min_total_tokens = self.num_prompt_tokens + params.min_tokens
        self._eos_token_ids = frozenset() if params.ignore_eos else frozenset(eos_token_ids)
        self._stop_token_ids = self._eos_token_ids.union(params.stop_token_ids)
        self.status = RequestStatus.WAITING
        self.num_scheduled_tokens = self.num_computed_tokens = self.num_late_tokens = self.num_preemptions = 0
        self.num_cached_tokens = -1
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | None = None
        self.has_ready_hashes = block_hashes is not None
        self.block_hashes: list[bytes] = [] if block_hashes is None else block_hashes

    def append(self, tokens: list[int]) -> list[int]:
        """Accept sampled tokens up to the one that ends the request. Returns those accepted.

        The only place that decides by length, EOS, stop token ids and min_tokens, for every
        scheduler: afterwards `finish_reason` is set if the request is over. EOS gives reason STOP
        without a `stop_reason`, a stop token id gives that id.
        """
        known, last, stops = self.token_ids, self.max_total_tokens, self._stop_token_ids
        if len(known) >= last:  # max_tokens = 0: the prompt was all
            self.finish_reason = FinishReason.LENGTH
            return []
        for n, token in enumerate(tokens, 1):
            known.append(token)
            if token in stops and len(known) > self._min_total_tokens:
                self.finish_reason = FinishReason.STOP
                self.stop_reason = None if token in self._eos_token_ids else token
                return tokens[:n]
            if len(known) >= last:
                self.finish_reason = FinishReason.LENGTH
                return tokens[:n]
        return tokens

    def preempt(self) -> None:
        """Start over from the first token: the blocks are gone. Tokens in flight come late."""
        self.num_late_tokens = self.num_sampling_tokens
        self.num_scheduled_tokens = self.num_computed_tokens = 0
        self.num_preemptions += 1

    @property
    def num_tokens(self) -> int:
        """Known tokens: prompt and accepted output."""
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Accepted output tokens."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def output_token_ids(self) -> list[int]:
        """A copy of the accepted output tokens."""
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def num_in_flight_tokens(self) -> int:
        """Tokens in submitted steps that have not returned."""
        return self.num_scheduled_tokens - self.num_computed_tokens

    @property
    def num_sampling_tokens(self) -> int:
        """Output tokens that are in flight: one per position from the last known token on."""
        return max(self.num_scheduled_tokens - len(self.token_ids) + 1, 0)

    @property
    def cache_identity(self) -> CacheIdentity:
        """Identity of the cached content, beside the tokens."""
        return CacheIdentity(self.cache_salt, self.adapter)

    @property
    def is_finished(self) -> bool:
        """Whether the request has ended."""
        return self.status is RequestStatus.FINISHED

    def __repr__(self) -> str:
        return (
            f"Request({self.request_id!r}, {self.status.name}, prompt={self.num_prompt_tokens}, "
            f"output={self.num_output_tokens}, scheduled={self.num_scheduled_tokens}, "
            f"computed={self.num_computed_tokens})"
        )
