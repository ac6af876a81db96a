"""A tokenizer whose tokens are bytes and chosen byte strings: every nasty cut of a character can be written down."""

import codecs
from collections.abc import Sequence
from typing import ClassVar

from enginecore.interfaces import DecodeStream, Tokenizer

EOS = 256
MARK = 257


class ByteTokenizer(Tokenizer):
    """Tokens 0 to 255 are single bytes, 256 and 257 special, those after them the byte strings in `words`."""

    specials: ClassVar = {EOS: "<eos>", MARK: "<mark>"}

    def __init__(self, words: Sequence[bytes] = ()):
        self.words = list(words)

    @property
    def vocab_size(self):
        return 258 + len(self.words)

    @property
    def eos_token_id(self):
        return EOS

    @property
    def special_token_ids(self):
        return frozenset(self.specials)

    def token(self, word: bytes | str) -> int:
        return 258 + self.words.index(word.encode() if isinstance(word, str) else word)

    def encode(self, text, *, add_special_tokens=True):
        return list(text.encode())

    def bytes_of(self, token_id, skip_special_tokens):
        if token_id < 256:
            return bytes([token_id])
        if token_id in self.specials:
            return b"" if skip_special_tokens else self.specials[token_id].encode()
        return self.words[token_id - 258]

    def raw(self, token_ids, skip_special_tokens=True):
        return b"".join(self.bytes_of(token_id, skip_special_tokens) for token_id in token_ids)

    def decode(self, token_ids, *, skip_special_tokens=True):
        return self.raw(token_ids, skip_special_tokens).decode(errors="replace")

    def apply_chat_template(self, messages, *, add_generation_prompt=True, **variables):
        lines = [f"<{message['role']}>{message['content']}" for message in messages]
        lines += [f"{name}={value}" for name, value in variables.items()]
        return "\n".join(lines) + ("\n<assistant>" if add_generation_prompt else "")

    def decode_stream(self, prompt_token_ids=(), *, skip_special_tokens=True):
        return ByteStream(self, self.raw(prompt_token_ids, skip_special_tokens), skip_special_tokens)


class ByteStream(DecodeStream):
    """Gives text once the bytes since it last did so end at the end of a character."""

    def __init__(self, tokenizer, prompt, skip_special_tokens):
        self.tokenizer = tokenizer
        self.skip_special_tokens = skip_special_tokens
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        decoder.decode(prompt)
        self.open = decoder.getstate()[0]  # what the prompt left of a character

    def step(self, token_id):
        self.open += self.tokenizer.bytes_of(token_id, self.skip_special_tokens)
        text = self.open.decode(errors="replace")
        if not text or text.endswith("\ufffd"):
            return None
        self.open = b""
        return text
