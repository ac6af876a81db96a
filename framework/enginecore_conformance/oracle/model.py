"""The oracle's model: tokens as a pure function of tokens, and the ground truth that needs no blocks."""

import math
import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from enginecore.messages import EngineCoreRequest, EngineInfo, FinishReason, PositionLogprobs
from enginecore.sampling import SamplingParams

DIGEST_BYTES = 8
"""Bytes that a slot takes."""


def root_digest(salt: str | None, adapter: str | None) -> int:
    """Digest before the first token: differs for every cache identity, is the same in every
    process.
    """
    return int.from_bytes(blake2b(repr((salt, adapter)).encode(), digest_size=DIGEST_BYTES).digest(), signed=True)


def extend_digest(last: int, token: int) -> int:
    """Digest of the prefix that ends with `token`, after a prefix with digest `last`."""
    return hash((last, token))  # of integers: not randomised, unlike that of strings


def extend_digests(last: int, token_ids: Iterable[int]) -> "array[int]":
    """Digests of the prefixes that end with each of these tokens, after a prefix with digest `last`."""
    digests = array("q")
    for token in token_ids:
        last = extend_digest(last, token)
        digests.append(last)
    return digests


class ExpectedOutput(NamedTuple):
    """Right output of a request, whatever else happens in the engine."""

    token_ids: list[int]
    finish_reason: FinishReason
    stop_reason: int | None


@dataclass(frozen=True, slots=True)
class OracleModel:
    """The model as a function.

    Attributes:
        vocab_size: Token ids are below this.
        eos_token_ids: Tokens that end an output.
        max_model_len: Tokens of one request at most, prompt included.
    """

    vocab_size: int
    eos_token_ids: tuple[int, ...]
    max_model_len: int

    @classmethod
    def of_engine(cls, info: EngineInfo) -> "OracleModel":
        """The model that an engine with the oracle runs.

        No request outgrows the KV cache, which needs no slot for the last token of a request.
        """
        longest = min(info.max_model_len, info.num_blocks * info.block_size + 1)
        return cls(info.vocab_size, tuple(info.eos_token_ids), longest)

    def logprobs(self, token: int, params: SamplingParams) -> PositionLogprobs:
        """Each token has twice the probability of the one that is next to it upwards, from `token` on."""
        ranks = range(params.logprobs or 0)
        return PositionLogprobs(
            token_ids=[token, *((token + rank) % self.vocab_size for rank in ranks)],
            logprobs=[-math.log(2), *(-(rank + 1) * math.log(2) for rank in ranks)],
            sampled_rank=1,
        )

    def expected_output(
        self, prompt: Sequence[int], params: SamplingParams, *, salt: str | None = None, adapter: str | None = None
    ) -> ExpectedOutput:
        """The ground truth: no blocks, no batches, no engine."""
        digests = extend_digests(root_digest(salt, adapter), prompt)
        last, state = digests[-1], zlib.crc32(digests)
        longest = self.max_model_len - len(prompt)
        room = longest if params.max_tokens is None else min(params.max_tokens, longest)
        tokens: list[int] = []
        while len(tokens) < room:
            token = self.token_of(state, params, len(tokens))
            tokens.append(token)
            if len(tokens) > params.min_tokens:
                if token in self.eos_token_ids and not params.ignore_eos:
                    return ExpectedOutput(tokens, FinishReason.STOP, None)
                if token in params.stop_token_ids:
                    return ExpectedOutput(tokens, FinishReason.STOP, token)
            digest = extend_digests(last, (token,))
            last, state = digest[0], zlib.crc32(digest, state)
        return ExpectedOutput(tokens, FinishReason.LENGTH, None)

    def expected_output_of(self, request: EngineCoreRequest) -> ExpectedOutput:
        """The ground truth for a request."""
        if not isinstance(request.params, SamplingParams):
            raise TypeError(f"the oracle samples: params must be SamplingParams, got {type(request.params).__name__}")
        return self.expected_output(
            request.prompt_token_ids, request.params, salt=request.cache_salt, adapter=request.adapter
        )

    def expected_tokens(
        self, prompt: Sequence[int], params: SamplingParams, *, salt: str | None = None, adapter: str | None = None
    ) -> list[int]:
        """The tokens of `expected_output`."""
        return self.expected_output(prompt, params, salt=salt, adapter=adapter).token_ids

    def token_of(self, state: int, params: SamplingParams, num_output_tokens: int) -> int:
        """The token that follows a context with this checksum of all of its slots."""
        seed = 0 if params.greedy else params.seed or 0
        token: int = hash((state, seed)) % self.vocab_size
        if num_output_tokens >= params.min_tokens:
            return token
        stops = {*params.stop_token_ids, *(() if params.ignore_eos else self.eos_token_ids)}
        shifts = ((token + shift) % self.vocab_size for shift in range(self.vocab_size))
        return next((shifted for shifted in shifts if shifted not in stops), token)
