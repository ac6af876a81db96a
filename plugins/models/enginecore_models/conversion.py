"""A GGUF file's converted copy: Hugging Face folders in the user's cache.

Parsing a GGUF file, its vocabulary above all, and dequantising it takes seconds; mapping the copy
takes none. The copy has three parts, each made when it is first asked for: config, tokenizer, and
weights per dtype.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from enginecore.errors import ModelError
from enginecore_models.cache import cached_folder, cached_or_temporary_folder, content_hash
from enginecore_models.checkpoint import WEIGHTS_FILE, Checkpoint, PartOf, everything, write_safetensors
from enginecore_models.config import CONFIG_FILE, ModelConfig, read_config

if TYPE_CHECKING:
    import torch

    from enginecore_models.gguf_file import GGUFFile

logger = logging.getLogger(__name__)

MAGIC = b"GGUF"
CONVERTER_VERSION = 1
"""Part of the copy's name: a converter that writes anything else gets a new number."""


def is_gguf(path: Path) -> bool:
    """Whether the file begins as a GGUF file does."""
    with path.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


class ConvertedGGUF:
    """A GGUF file as Hugging Face folders; read without a copy where the cache cannot be written.

    Raises:
        ModelError: by every method: the file is truncated or holds what is not supported.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def config(self) -> ModelConfig:
        """What the file says about the model."""
        with self._part("config", self._write_config) as folder:
            return read_config(folder)

    @contextmanager
    def tokenizer(self) -> Iterator[Path]:
        """A temporary folder with tokenizer.json, tokenizer_config.json and the chat template."""
        # transformers makes it, and not the same in every version
        part = f"tokenizer-{version('transformers')}"
        with self._part(part, self._write_tokenizer) as folder:
            yield folder

    def prepare(self, dtype: "torch.dtype") -> Path | None:
        """Make the copy in `dtype` if there is none, tensor by tensor; None: it cannot be kept."""
        key = self._key(f"weights-{str(dtype).removeprefix('torch.')}")
        return cached_folder("converted", key, lambda folder: self._write_weights(folder, dtype))

    def weights(self, dtype: "torch.dtype", part_of: PartOf = everything) -> "Iterator[tuple[str, torch.Tensor]]":
        """Name and wanted part in `dtype`, from the copy, which is made first if need be."""
        folder = self.prepare(dtype)
        return (self._file if folder is None else Checkpoint(folder)).weights(dtype, part_of)

    def _part(self, name: str, build: Callable[[Path], None]) -> AbstractContextManager[Path]:
        return cached_or_temporary_folder("converted", self._key(name), build)

    def _key(self, part: str) -> str:
        return f"{self._hash}-v{CONVERTER_VERSION}-{part}"

    @cached_property
    def _hash(self) -> str:
        return content_hash(self._path)

    @cached_property
    def _file(self) -> "GGUFFile":
        from enginecore_models.gguf_file import GGUFFile

        return GGUFFile(self._path)

    def _write_config(self, folder: Path) -> None:
        (folder / CONFIG_FILE).write_bytes(msgspec.json.encode(self._file.config()))

    def _write_weights(self, folder: Path, dtype: "torch.dtype") -> None:
        logger.info("converting %s to %s once; the copy goes to %s", self._path, dtype, folder.parent)
        self._write_config(folder)
        shapes = {name: self._file.shape(name) for name in self._file.names}
        write_safetensors(folder / WEIGHTS_FILE, dtype, shapes, self._file.weights(dtype))

    def _write_tokenizer(self, folder: Path) -> None:
        from transformers import PreTrainedTokenizerFast

        try:
            # not AutoTokenizer: it parses the whole file once more to learn the class, which is
            # this one
            tokenizer = PreTrainedTokenizerFast.from_pretrained(self._path.parent, gguf_file=self._path.name)
        # what its parsers meet in a file that they do not understand may be anything
        except Exception as error:
            raise ModelError(
                f"transformers cannot make a tokenizer of {self._path} ({type(error).__name__}: {error}): give a "
                "folder or tokenizer.json as `tokenizer`"
            ) from error
        # some versions mix up the two (5.17 gives BOS for both): what the file says holds
        config = self.config()
        if config.bos_token_id is not None:
            tokenizer.bos_token = tokenizer.convert_ids_to_tokens(config.bos_token_id)
        if config.eos_token_ids:
            tokenizer.eos_token = tokenizer.convert_ids_to_tokens(config.eos_token_ids[0])
        tokenizer.save_pretrained(folder)
