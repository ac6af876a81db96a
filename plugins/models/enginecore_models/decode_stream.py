"""AutoDecodeStream: tokens in, whole characters out."""

from collections.abc import Sequence

from tokenizers import Tokenizer as Backend
from tokenizers.decoders import DecodeStream as BackendStream

from enginecore.interfaces import DecodeStream

REPLACEMENT = "\ufffd"
_CONTEXT = 8  # tokens


class AutoDecodeStream(DecodeStream):
    """The streaming decoder of the tokenizers library, continued after a prompt.

    Only the prompt's end is context. What follows depends on it in two ways: the last character may
    still be open (at most 3 bytes, so at most 3 tokens), and decoders drop a leading space at the
    start of a text, so that some text must stand before. The context reaches back until it holds
    text and does not begin within a character.
    """

    __slots__ = ("_backend", "_open", "_prompt_text", "_skip_special_tokens", "_stream")

    def __init__(self, backend: Backend, prompt_token_ids: Sequence[int], skip_special_tokens: bool) -> None:
        self._backend = backend
        self._skip_special_tokens = skip_special_tokens
        context, text = self._context(prompt_token_ids)
        self._stream = BackendStream(ids=context, skip_special_tokens=skip_special_tokens)
        # where the prompt ends within a character, the library gives its text again with the first
        # new one
        self._prompt_text = text if text.endswith(REPLACEMENT) else ""
        self._open: list[int] = []  # tokens whose text was not given yet

    def step(self, token_id: int) -> str | None:
        """The text that this token completes, or None if a character is still open."""
        try:
            text: str | None = self._stream.step(self._backend, token_id)
        except Exception:  # the library has no class of its own for "Invalid prefix encountered"
            return self._restart(token_id)
        if text is None:
            self._open.append(token_id)
            return None
        if self._open:
            self._open.clear()
        if self._prompt_text:
            text = text[_common_prefix_length(text, self._prompt_text) :]
            self._prompt_text = ""
        return text or None

    def _restart(self, token_id: int) -> str | None:
        """Go on after a token that changed the text before it, which cannot be taken back.

        Byte-fallback decoders turn a whole run of byte tokens into U+FFFD once one of them fits
        nowhere.
        """
        tokens, self._open = [*self._open, token_id], []
        self._stream = BackendStream(skip_special_tokens=self._skip_special_tokens)
        return "".join(text for token in tokens if (text := self.step(token))) or None

    def _context(self, prompt_token_ids: Sequence[int]) -> tuple[list[int], str]:
        size = _CONTEXT
        while True:
            context = list(prompt_token_ids[-size:])
            text = self._backend.decode(context, skip_special_tokens=self._skip_special_tokens)
            if size >= len(prompt_token_ids) or (text.strip(REPLACEMENT) and not text.startswith(REPLACEMENT)):
                return context, text
            size *= 2


def _common_prefix_length(first: str, second: str) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))
