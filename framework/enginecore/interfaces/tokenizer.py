"""Tokenizer: text to token ids and back, also token by token."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class DecodeStream(Protocol):
    """Turns tokens into text one at a time; never gives half a character."""

    def step(self, token_id: int) -> str | None:
        """The text that this token completes, or None if a character is still open."""
        ...


class Tokenizer(Protocol):
    """Thread-safe: it may be used from several threads at once."""

    @property
    def vocab_size(self) -> int:
        """Token ids are below this, special ones included."""
        ...

    @property
    def eos_token_id(self) -> int | None:
        """The token that ends a text."""
        ...

    @property
    def special_token_ids(self) -> frozenset[int]:
        """Tokens that `skip_special_tokens` leaves out of the text."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text; may be empty."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of token ids; bytes that make no character become U+FFFD."""
        ...

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """The prompt for a conversation, by the model's own template.

        Raises:
            InvalidRequestError: the model has no template, or it refuses these messages; says why.
        """
        ...

    def decode_stream(self, prompt_token_ids: Sequence[int] = (), *, skip_special_tokens: bool = True) -> DecodeStream:
        """A fresh stream that continues after these tokens: their text is context and is not given again."""
        ...
