"""Sampling parameters of a request. Names and defaults follow vLLM's `SamplingParams`."""

from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec

from enginecore.errors import InvalidRequestError

MAX_STOP_STRINGS = 64
MAX_STOP_STRING_LENGTH = 1024
MAX_STOP_TOKEN_IDS = 256
MAX_LOGPROBS = 20


def _refuse(field: str, value: object, expected: str) -> NoReturn:
    raise InvalidRequestError(f"{field} must be {expected}, got {value!r:.200}")


def _check_number(field: str, value: Any, low: float, high: float, expected: str) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low <= value <= high:  # not a number is in no range
        _refuse(field, value, expected)


def _check_integer(field: str, value: Any, low: int, high: int, expected: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        _refuse(field, value, expected)


class SamplingParams(msgspec.Struct, array_like=True, omit_defaults=True, kw_only=True, frozen=True, tag="sampling"):
    """Sampling of one request's tokens, and when it ends. Checked on construction.

    Attributes:
        n: Completions per prompt. Only 1 for now.
        temperature: 0 is greedy; above 0 divides the logits. At most 100.
        top_p: Smallest set of tokens whose probability reaches this, in (0, 1].
        top_k: Only the k likeliest tokens; 0 or -1 is all.
        seed: Same seed and logits: same token, whatever else is in the batch. (In bfloat16 the size
            of the batch changes the rounding of the logits themselves.) None: drawn by the engine.
        max_tokens: Output tokens at most; None fills the context. 0 computes the prompt and ends.
        min_tokens: Neither EOS nor a stop token is sampled before this many output tokens.
        stop: Strings that end the output when its text contains them.
        stop_token_ids: Tokens that end the output, beside the model's own EOS.
        ignore_eos: The model's EOS is a token like any other.
        include_stop_str_in_output: Leave the stop string in the text.
        skip_special_tokens: Leave special tokens out of the text.
        detokenize: False: token ids only, `text` stays empty.
        logprobs: Log-probabilities of the sampled and of this many likeliest tokens, at most 20.
            None: none.

    Raises:
        InvalidRequestError: (a ValueError) naming field, value and range.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    detokenize: bool = True
    logprobs: int | None = None

    def __post_init__(self) -> None:
        stop: Any = self.stop
        if isinstance(stop, str):
            stop = (stop,)
        # scripts pass lists and None, as vLLM allows; the struct is frozen and holds tuples
        msgspec.structs.force_setattr(self, "stop", self._as_tuple("stop", stop))
        msgspec.structs.force_setattr(self, "stop_token_ids", self._as_tuple("stop_token_ids", self.stop_token_ids))
        self._check()

    @staticmethod
    def _as_tuple(field: str, value: Any) -> tuple[Any, ...]:
        if value is None:
            return ()
        if not isinstance(value, Sequence | set | frozenset) or isinstance(value, bytes):
            _refuse(field, value, "a list")
        return tuple(value)

    def _check(self) -> None:
        _check_integer("n", self.n, 1, 1, "1 (several completions per prompt are not supported yet)")
        _check_number("temperature", self.temperature, 0, 100, "a number in [0, 100]")
        _check_number("top_p", self.top_p, 1e-12, 1, "a number in (0, 1]")
        _check_integer("top_k", self.top_k, -1, 1 << 31, "an integer, -1 or 0 for all tokens, else at least 1")
        if self.seed is not None:
            _check_integer("seed", self.seed, -(1 << 63), (1 << 63) - 1, "None or an integer of 64 bits")
        if self.max_tokens is not None:
            _check_integer("max_tokens", self.max_tokens, 0, 1 << 31, "None or an integer of at least 0")
        longest = (1 << 31) if self.max_tokens is None else self.max_tokens
        _check_integer("min_tokens", self.min_tokens, 0, longest, f"an integer in [0, max_tokens = {self.max_tokens}]")
        if self.logprobs is not None:
            _check_integer("logprobs", self.logprobs, 0, MAX_LOGPROBS, f"None or an integer in [0, {MAX_LOGPROBS}]")
        for field in ("ignore_eos", "include_stop_str_in_output", "skip_special_tokens", "detokenize"):
            if not isinstance(getattr(self, field), bool):
                _refuse(field, getattr(self, field), "True or False")
        self._check_stops()

    def _check_stops(self) -> None:
        if len(self.stop) > MAX_STOP_STRINGS:
            _refuse("stop", f"{len(self.stop)} strings", f"at most {MAX_STOP_STRINGS} strings")
        for text in self.stop:
            if not isinstance(text, str) or not 0 < len(text) <= MAX_STOP_STRING_LENGTH:
                _refuse("stop", text, f"strings of 1 to {MAX_STOP_STRING_LENGTH} characters")
        if self.stop and not self.detokenize:
            _refuse("stop", self.stop, "empty when detokenize is False: stop strings need the text")
        if len(self.stop_token_ids) > MAX_STOP_TOKEN_IDS:
            _refuse("stop_token_ids", f"{len(self.stop_token_ids)} ids", f"at most {MAX_STOP_TOKEN_IDS} ids")
        for token in self.stop_token_ids:
            _check_integer("stop_token_ids", token, 0, 1 << 31, "token ids of at least 0")

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always taken."""
        return self.temperature == 0


class PoolingParams(msgspec.Struct, array_like=True, omit_defaults=True, kw_only=True, frozen=True, tag="pooling"):
    """Foreseen: a request that ends without tokens. Refused by name until it is built."""

    task: str = "embed"
