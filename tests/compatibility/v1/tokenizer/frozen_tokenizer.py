"""A tokenizer whose tokens are the bytes of a text, and one that ends it."""

from codecs import getincrementaldecoder
from collections.abc import Sequence

from enginecore.interfaces import DecodeStream, Tokenizer
from enginecore.plugin import Component, ComponentSettings, TokenizerContext, hookimpl

END = 256


class FrozenStream(DecodeStream):
    def __init__(self, prompt_token_ids: Sequence[int]) -> None:
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._decoder.decode(bytes(token_id for token_id in prompt_token_ids if token_id < END))

    def step(self, token_id: int) -> str | None:
        return self._decoder.decode(bytes([token_id])) or None if token_id < END else None


class FrozenTokenizer(Tokenizer):
    @property
    def vocab_size(self) -> int:
        return END + 1

    @property
    def eos_token_id(self) -> int | None:
        return END

    @property
    def special_token_ids(self) -> frozenset[int]:
        return frozenset({END})

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        end = "" if skip_special_tokens else "<end>"
        texts = bytes(token_id for token_id in token_ids if token_id < END).decode(errors="replace")
        return texts + end * sum(token_id == END for token_id in token_ids)

    def decode_stream(self, prompt_token_ids: Sequence[int] = (), *, skip_special_tokens: bool = True) -> DecodeStream:
        return FrozenStream(prompt_token_ids)


def make_tokenizer(settings: ComponentSettings, context: TokenizerContext) -> Tokenizer:
    return FrozenTokenizer()


COMPONENT = Component(kind="tokenizer", name="frozen-tokenizer", factory=make_tokenizer, summary="Tokens are bytes.")


@hookimpl
def enginecore_components() -> list[Component]:
    return [COMPONENT]
