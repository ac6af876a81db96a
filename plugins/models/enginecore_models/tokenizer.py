"""The tokenizer `auto`: a model's own tokenizer.json, run by the tokenizers library."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from enginecore.errors import ModelError
from enginecore.interfaces import Tokenizer
from enginecore_models.chat_template import ChatTemplate
from enginecore_models.conversion import ConvertedGGUF, is_gguf
from enginecore_models.decode_stream import AutoDecodeStream
from enginecore_models.location import TOKENIZER_FILES, locate
from enginecore_models.tokenizer_config import TokenizerConfig, read_tokenizer_config

TOKENIZER_FILE = "tokenizer.json"


class AutoTokenizer(Tokenizer):
    """The tokenizers library behind the interface of the engine.

    Same ids as transformers' AutoTokenizer. Texts are never "cleaned up" (spaces before punctuation
    stay): the text of a stream could not be, and both must be equal. Thread-safe: nothing is
    changed after construction. Only single texts are encoded, so the library starts no threads and
    a later fork is safe.
    """

    def __init__(self, backend: Backend, config: TokenizerConfig, origin: str) -> None:
        self._backend = backend
        _prepare(backend, config)
        added = backend.get_added_tokens_decoder()
        self._vocab_size = max([backend.get_vocab_size(with_added_tokens=True), *(token + 1 for token in added)])
        self._special_token_ids = frozenset(token for token, added_token in added.items() if added_token.special)
        eos = config.special_tokens.get("eos_token")
        self._eos_token_id = config.eos_token_id if eos is None else backend.token_to_id(eos)
        self._chat_template = ChatTemplate(config.chat_templates, config.special_tokens, origin)

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def eos_token_id(self) -> int | None:
        return self._eos_token_id

    @property
    def special_token_ids(self) -> frozenset[int]:
        return self._special_token_ids

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return self._backend.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return self._backend.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        return self._chat_template.render(messages, add_generation_prompt=add_generation_prompt, **variables)

    def decode_stream(
        self, prompt_token_ids: Sequence[int] = (), *, skip_special_tokens: bool = True
    ) -> AutoDecodeStream:
        return AutoDecodeStream(self._backend, prompt_token_ids, skip_special_tokens)


def load_tokenizer(name: str) -> AutoTokenizer:
    """The tokenizer of a folder, a tokenizer.json, a GGUF file, a hub id or a known model.

    Raises:
        ModelError: there is none, or it is broken; says what was tried and what would do.
    """
    path = locate(name, TOKENIZER_FILES)
    with _tokenizer_file(path) as file:
        try:
            backend = Backend.from_file(str(file))
        except Exception as error:  # the library raises nothing more special
            raise ModelError(f"{file} is not a tokenizer.json that can be read: {error}") from error
        return AutoTokenizer(backend, read_tokenizer_config(file.parent), str(path))


@contextmanager
def _tokenizer_file(path: Path) -> Iterator[Path]:
    """A tokenizer.json with its neighbours; what had to be made for it may vanish afterwards."""
    if path.is_file():
        if not is_gguf(path):
            yield path
            return
        with ConvertedGGUF(path).tokenizer() as folder:
            yield folder / TOKENIZER_FILE
    elif (path / TOKENIZER_FILE).exists():
        yield path / TOKENIZER_FILE
    else:
        with tempfile.TemporaryDirectory(prefix="enginecore-") as temporary:
            _convert(path, Path(temporary))
            yield Path(temporary) / TOKENIZER_FILE


def _convert(folder: Path, target: Path) -> None:
    """Let transformers make a tokenizer.json from older files, such as tokenizer.model."""
    from transformers import AutoTokenizer as TransformersTokenizer

    try:
        TransformersTokenizer.from_pretrained(folder).save_pretrained(target)
    except Exception as error:  # what its many converters raise is anything
        raise ModelError(
            f"{folder} has no {TOKENIZER_FILE}, and transformers finds no other tokenizer in it "
            f"({type(error).__name__}: {error}): give another folder or file as `tokenizer`"
        ) from error
    if not (target / TOKENIZER_FILE).exists():
        raise ModelError(
            f"{folder} has no {TOKENIZER_FILE}, and its tokenizer cannot be made into one: give another as `tokenizer`"
        )


def _prepare(backend: Backend, config: TokenizerConfig) -> None:
    """Encode whole texts, and add the tokens that only tokenizer_config.json names."""
    backend.no_truncation()
    backend.no_padding()
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    backend.add_tokens([token for token in config.added_tokens if token.content not in known])
