"""Checks that every request must pass, alike in the front end and in the engine core.

One function per question. Each raises InvalidRequestError, which names the field, its value and
what would be right.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from enginecore.errors import InvalidRequestError
from enginecore.messages import EngineInfo

MAX_WORD_LENGTH = 256
MAX_HINTS = 64
LARGEST_NUMBER = 1e300
"""Policies add and weigh the numbers of requests, which must not end in infinity."""

_WORDS = ("tenant", "cache_salt", "adapter")
_NUMBERS = ("arrival_time", "priority", "deadline")


@contextmanager
def naming_request(request_id: str) -> Iterator[None]:
    """Let an InvalidRequestError begin with the id of the request."""
    try:
        yield
    except InvalidRequestError as error:
        raise InvalidRequestError(f"request {request_id!r}: {error}") from error


def check_text(name: str, value: object) -> None:
    """Refuse text, by itself or within `value`, that is no Unicode: neither tokenizers nor
    transports can take it.
    """
    try:
        msgspec.msgpack.encode(value)
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"{name} must be text that UTF-8 can hold: {error.object[error.start]!r} at index {error.start} is half a "
            "surrogate pair, or stands for a byte that could not be decoded"
        ) from None


def check_word(name: str, word: str) -> None:
    """Refuse text that is too long for a name of something."""
    if len(word) > MAX_WORD_LENGTH:
        raise InvalidRequestError(f"{name} must be at most {MAX_WORD_LENGTH} characters long, got {len(word)}")
    check_text(name, word)


def check_request_id(request_id: object) -> None:
    """Refuse an id that is no string of reasonable length."""
    if not isinstance(request_id, str) or not 0 < len(request_id) <= MAX_WORD_LENGTH:
        raise InvalidRequestError(
            f"request_id must be a string of 1 to {MAX_WORD_LENGTH} characters, got {request_id!r:.100}"
        )
    check_text("request_id", request_id)


def check_number(name: str, number: float) -> None:
    """Refuse a number by which policies cannot order requests."""
    if not -LARGEST_NUMBER <= number <= LARGEST_NUMBER:  # also refuses nan
        raise InvalidRequestError(f"{name} must be a number in [-{LARGEST_NUMBER}, {LARGEST_NUMBER}], got {number}")


def check_fields(fields: Mapping[str, Any]) -> None:
    """Refuse values of the fields beside prompt and sampling parameters. Their types are right
    already.

    Args:
        fields: By name, as in `EngineCoreRequest`; those that are missing or None need no check.
    """
    for name in _WORDS:
        if (word := fields.get(name)) is not None:
            check_word(name, word)
    for name in _NUMBERS:
        if (number := fields.get(name)) is not None:
            check_number(name, number)
    hints = fields.get("hints", {})
    if len(hints) > MAX_HINTS:
        raise InvalidRequestError(f"hints must have at most {MAX_HINTS} entries, got {len(hints)}")
    for name, value in hints.items():
        check_word("hints", name)
        check_number(f"hints[{name!r}]", value)


def check_prompt_length(num_prompt_tokens: int, max_tokens: int | None, info: EngineInfo) -> None:
    """Refuse an empty prompt, and one that leaves no room for its output. Needs no prompt, only its
    length.
    """
    if not num_prompt_tokens:
        raise InvalidRequestError("the prompt is empty: it must have at least one token")
    room = 0 if max_tokens == 0 else 1
    if num_prompt_tokens + room > info.max_model_len:
        why = "one output token must fit beside it" if room else "nothing is generated"
        raise InvalidRequestError(
            f"the prompt has {num_prompt_tokens} tokens and may have {info.max_model_len - room} "
            f"(max_model_len is {info.max_model_len} and {why})"
        )


def check_token_ids(name: str, token_ids: Sequence[int], info: EngineInfo) -> None:
    """Refuse token ids that the model does not know."""
    if not token_ids or (min(token_ids) >= 0 and max(token_ids) < info.vocab_size):
        return
    position = next(n for n, token_id in enumerate(token_ids) if not 0 <= token_id < info.vocab_size)
    raise InvalidRequestError(
        f"{name} must be in [0, {info.vocab_size}), the vocabulary of {info.model}; "
        f"got {token_ids[position]} at index {position}"
    )
