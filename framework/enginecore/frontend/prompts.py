"""Forms in which prompts, conversations and their options may be passed: one or many."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from enginecore.errors import InvalidRequestError
from enginecore.frontend.input_processor import Message, Prompt


def list_prompts(prompts: Prompt | Iterable[Prompt]) -> list[Prompt]:
    """The prompts in their order. Numbers are the token ids of a single one.

    Raises:
        InvalidRequestError: neither a prompt nor something that gives prompts.
    """
    if isinstance(prompts, str | bytes | Mapping):
        return [cast(Prompt, prompts)]
    if not isinstance(prompts, Iterable):
        raise InvalidRequestError(f"prompts must be a prompt or a list of prompts, got {prompts!r:.100}")
    given = list(prompts)
    return [cast(Prompt, given)] if given and isinstance(given[0], int) else cast(list[Prompt], given)


def list_conversations(messages: Iterable[Message] | Iterable[Sequence[Message]]) -> list[Sequence[Message]]:
    """The conversations in their order. Messages are those of a single one.

    Raises:
        InvalidRequestError: something that gives neither messages nor conversations.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise InvalidRequestError(
            f"messages must be a list of messages, or a list of such lists, got {messages!r:.100}"
        )
    given: list[Any] = list(messages)
    return [given] if given and isinstance(given[0], Mapping) else given


def spread(name: str, value: Any, count: int) -> Sequence[Any]:
    """An option that is given for all prompts, or as a list or tuple per prompt: one value for each
    of `count` prompts.

    Raises:
        InvalidRequestError: a list of another length; says `name`.
    """
    if not isinstance(value, list | tuple):
        return [value] * count
    if len(value) != count:
        raise InvalidRequestError(f"{name} must be one for all or one per prompt: got {len(value)} for {count} prompts")
    return value


@contextmanager
def naming(what: str, index: int, count: int) -> Iterator[None]:
    """Let an InvalidRequestError say which of many was refused."""
    try:
        yield
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{what} {index} of {count}: {error}") from error
