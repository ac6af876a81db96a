"""Tokenizer: text to token ids and back, also token by token."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from enginecore.errors import ConfigurationError, InvalidRequestError


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """All tokens as bytes.

    Attributes:
        tokens: Bytes of each id, byte-level and byte-fallback spellings undone; b"" for ids without
            a token. Its length is the size that was asked for.
        special_ids: Ids that stand for no text; `tokens` has their names.
        end_ids: Ids that end a text.
        encode: Text to ids, without special tokens. Thread-safe.
    """

    tokens: tuple[bytes, ...]
    special_ids: frozenset[int]
    end_ids: frozenset[int]
    encode: Callable[[str], list[int]]


class DecodeStream(ABC):
    """Turns tokens into text one at a time; never gives half a character. Subclass it."""

    __slots__ = ()

    @abstractmethod
    def step(self, token_id: int) -> str | None:
        """The text that this token completes, or None if a character is still open."""


class Tokenizer(ABC):
    """Text to token ids and back. Subclass it. Thread-safe: it may be used from several threads at
    once.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Token ids are below this, special ones included."""

    @property
    @abstractmethod
    def eos_token_id(self) -> int | None:
        """The token that ends a text; None if there is none."""

    @property
    @abstractmethod
    def special_token_ids(self) -> frozenset[int]:
        """Tokens that `skip_special_tokens` leaves out of the text."""

    @abstractmethod
    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text; may be empty."""

    @abstractmethod
    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of token ids; bytes that make no character become U+FFFD."""

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """The prompt for a conversation, by the model's own template. Default: there is no
        template.

        Raises:
            InvalidRequestError: the model has no template, or it refuses these messages; says why.
        """
        raise InvalidRequestError(
            f"{type(self).__name__} has no chat template: pass the prompt as text or as token ids"
        )

    def vocabulary(self, size: int) -> Vocabulary:
        """Foreseen (structured output): what each token id below `size` stands for.

        Args:
            size: Ids that the model scores (`ModelInfo.vocab_size`): shorter vocabularies are
                padded with b"", longer ones cut.

        Raises:
            ConfigurationError: the tokenizer cannot say what its tokens are: the default.
        """
        raise ConfigurationError(
            f"{type(self).__name__} cannot say what its tokens are: it does not override `vocabulary`"
        )

    @abstractmethod
    def decode_stream(self, prompt_token_ids: Sequence[int] = (), *, skip_special_tokens: bool = True) -> DecodeStream:
        """A fresh stream that continues after these tokens: their text is context and is not given
        again.
        """
