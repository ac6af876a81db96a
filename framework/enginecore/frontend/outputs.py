"""Outputs for users. Names and fields follow vLLM's, so that scripts move over."""

import enum
from dataclasses import dataclass


class RequestOutputKind(enum.Enum):
    """Contents of the outputs of one request."""

    CUMULATIVE = 0
    """Each output holds everything so far."""
    DELTA = 1
    """Each output holds what is new since the one before."""
    FINAL_ONLY = 2
    """One output, the last, holds everything."""


@dataclass(slots=True, frozen=True)
class Logprob:
    """Log-probability of one token at one position.

    Attributes:
        logprob: Natural logarithm of its probability.
        rank: 1 is the likeliest token.
        decoded_token: Text of the token on its own; None if the request does without text.
    """

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass(slots=True)
class CompletionOutput:
    """One completion of a prompt.

    A stop string, or the beginning of one that may still be completed, is held back from `text` but
    not from `token_ids` and `logprobs`: text can lag behind the tokens by up to the longest stop
    string, and each token and its log-probabilities come exactly once. When a stop string ends the
    completion, `token_ids` end with the token that completed it and `text` ends before it.

    Attributes:
        index: Index among the prompt's completions.
        text: Without the stop string or stop token, unless `include_stop_str_in_output` is set.
        token_ids: The stop token included.
        cumulative_logprob: Sum over all sampled tokens so far; None unless `logprobs` were asked
            for.
        logprobs: Per token, the sampled token and the likeliest ones by token id; None unless asked
            for.
        finish_reason: "stop", "length", "abort" or "error", in the last output; None before.
        stop_reason: The stop string or stop token id that ended it; None if it was the model's EOS
            or no stop at all.
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    @property
    def finished(self) -> bool:
        """Whether this is the last word."""
        return self.finish_reason is not None


@dataclass(slots=True)
class RequestMetrics:
    """Times of one request in seconds on the front end's clock. All outputs of a request share one,
    filled as it goes.

    Attributes:
        arrival_time: When it was added.
        first_token_time: When its first token was seen.
        finished_time: When it ended.
        num_output_tokens: Tokens given so far.
    """

    arrival_time: float
    first_token_time: float | None = None
    finished_time: float | None = None
    num_output_tokens: int = 0

    @property
    def time_to_first_token(self) -> float | None:
        """TTFT in seconds; None before the first token."""
        return None if self.first_token_time is None else self.first_token_time - self.arrival_time

    @property
    def e2e_latency(self) -> float | None:
        """Seconds from arrival to the last output; None before that."""
        return None if self.finished_time is None else self.finished_time - self.arrival_time

    @property
    def time_per_output_token(self) -> float | None:
        """TPOT in seconds, over the tokens after the first; None before the end or with fewer than
        two tokens.
        """
        if self.finished_time is None or self.first_token_time is None or self.num_output_tokens < 2:
            return None
        return (self.finished_time - self.first_token_time) / (self.num_output_tokens - 1)


@dataclass(slots=True)
class RequestOutput:
    """News of one request. Exactly one output of a request is `finished`, its last.

    Attributes:
        request_id: As given to `add_request`.
        prompt: Text of the prompt, if it was given as text.
        prompt_token_ids: Tokens of the prompt.
        outputs: One completion.
        finished: Whether this is the last output.
        num_cached_tokens: Prompt tokens that were found in the prefix cache.
        metrics: Times of the request.
        error: Message of the error, where the finish reason is "error".
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    num_cached_tokens: int
    metrics: RequestMetrics
    error: str | None = None
