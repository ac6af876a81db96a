"""Conversations of ShareGPT.

https://huggingface.co/datasets/anon8231489123/ShareGPT_Vicuna_unfiltered, `ShareGPT_V3_unfiltered_cleaned_split.json`;
its card says Apache-2.0, its texts are their writers'. Texts of conversations; no times.
"""

import math
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import msgspec

from enginecore.errors import ConfigurationError

_ASKING = ("human", "user", "system")
_ANSWERING = ("gpt", "chatgpt", "bing", "bard", "assistant")


class ConversationLengths(NamedTuple):
    """One conversation's lengths.

    Attributes:
        name: Id of the conversation in the file.
        turns: (tokens that are asked, tokens that are answered) of each turn; at least one.
    """

    name: str
    turns: tuple[tuple[int, int], ...]


def count_words(tokens_per_word: float = 1.3) -> Callable[[str], int]:
    """An estimate that needs no tokenizer: so many tokens for each word."""
    return lambda text: math.ceil(len(text.split()) * tokens_per_word)


def load_sharegpt(
    path: Path, count_tokens: Callable[[str], int], *, limit: int | None = None
) -> list[ConversationLengths]:
    """The conversations of a file as published, in its order.

    What is asked, together with what stands before it, is answered by what follows. A conversation in which nothing is
    asked and then answered is left out, as is what stands before its first question and behind its last answer.

    Args:
        path: The file: a list of `{"id": ..., "conversations": [{"from": "human", "value": ...}, ...]}`.
        count_tokens: Tokens of a text.
        limit: Conversations at most, which spares counting the tokens of the others.

    Raises:
        ConfigurationError: an entry is not as published; says which, and what is wrong with it.
    """
    found: list[ConversationLengths] = []
    for number, entry in enumerate(_entries(path)):
        if limit is not None and len(found) >= limit:
            break
        if turns := tuple(_turns(path, number, entry, count_tokens)):
            found.append(ConversationLengths(str(entry.get("id", number)), turns))
    if not found:
        raise ConfigurationError(f"{path} holds no conversations in which something is asked and answered")
    return found


def _entries(path: Path) -> list[dict[str, Any]]:
    try:
        entries = msgspec.json.decode(path.read_bytes().removeprefix(BOM_UTF8))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: no JSON ({error})") from error
    if not isinstance(entries, list):
        raise ConfigurationError(f"{path} must hold a list of conversations, got {type(entries).__name__}")
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("conversations"), list):
            _refuse(path, number, "conversations", entry, "a list")
    return entries


def _turns(
    path: Path, number: int, entry: dict[str, Any], count_tokens: Callable[[str], int]
) -> Iterator[tuple[int, int]]:
    asked = answered = 0
    for message in entry["conversations"]:
        speaker = message.get("from") if isinstance(message, dict) else None
        text = message.get("value") if isinstance(message, dict) else None
        if speaker not in (*_ASKING, *_ANSWERING):
            _refuse(path, number, "from", speaker, f"one of {', '.join((*_ASKING, *_ANSWERING))}")
        if not isinstance(text, str):
            _refuse(path, number, "value", text, "text")
        if speaker in _ANSWERING:
            answered += count_tokens(text) if asked else 0
            continue
        if answered:
            yield asked, answered
            asked = answered = 0
        asked += count_tokens(text)
    if asked and answered:
        yield asked, answered


def _refuse(path: Path, number: int, field: str, value: object, expected: str) -> NoReturn:
    raise ConfigurationError(f"{path}, entry {number}: {field} must be {expected}, got {value!r:.80}")
