"""ModelSource: a model's configuration and its weights; `find_model` finds one by name."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from enginecore.errors import ModelError
from enginecore_models.checkpoint import Checkpoint, PartOf, everything
from enginecore_models.config import ModelConfig, read_config
from enginecore_models.conversion import ConvertedGGUF, is_gguf
from enginecore_models.location import MODEL_FILES, locate

if TYPE_CHECKING:
    import torch


class ModelSource(Protocol):
    """A model that was found, its weights not read yet."""

    @property
    def name(self) -> str:
        """As the user named it."""
        ...

    @property
    def path(self) -> Path:
        """The folder or GGUF file."""
        ...

    @property
    def config(self) -> ModelConfig:
        """What the model says about itself."""
        ...

    def prepare(self, dtype: "torch.dtype") -> object:
        """Do once what makes reading in `dtype` quick, for all processes that are about to read."""
        ...

    def weights(self, dtype: "torch.dtype", part_of: PartOf = ...) -> "Iterator[tuple[str, torch.Tensor]]":
        """Every weight once, in any order, in Hugging Face's layout, on the CPU, cast to `dtype`.

        `part_of` is asked about each in turn, and no more than the part that it wants is read; by
        default everything. A tensor may be a private mapping of the file: reading it is what loads
        it. The stream holds one tensor at a time, so a caller that copies or moves each before it
        asks for the next never has the model twice.

        Raises:
            ModelError: a file is truncated or holds what is not supported; names the file and the
                tensor.
        """
        ...


@dataclass(frozen=True)
class FolderSource:
    """A Hugging Face folder: config.json and safetensors, sharded or not."""

    name: str
    path: Path
    config: ModelConfig
    checkpoint: Checkpoint

    def prepare(self, dtype: "torch.dtype") -> None:
        """Nothing to do."""

    def weights(self, dtype: "torch.dtype", part_of: PartOf = everything) -> "Iterator[tuple[str, torch.Tensor]]":
        return self.checkpoint.weights(dtype, part_of)


@dataclass(frozen=True)
class GGUFSource:
    """A GGUF file, read through its converted copy in the user's cache."""

    name: str
    path: Path
    config: ModelConfig
    converted: ConvertedGGUF

    def prepare(self, dtype: "torch.dtype") -> None:
        self.converted.prepare(dtype)

    def weights(self, dtype: "torch.dtype", part_of: PartOf = everything) -> "Iterator[tuple[str, torch.Tensor]]":
        return self.converted.weights(dtype, part_of)


def find_model(model: str) -> ModelSource:
    """Find a model by folder, GGUF file, hub id ("org/name") or the name "smollm2-135m".

    Raises:
        ModelError: nothing there, or not a model that can be read; says what was tried and what
            would do.
    """
    path = locate(model, MODEL_FILES)
    if path.is_dir():
        checkpoint = Checkpoint(path)
        return FolderSource(model, path, read_config(path, checkpoint.dtype), checkpoint)
    if is_gguf(path):
        converted = ConvertedGGUF(path)
        return GGUFSource(model, path, converted.config(), converted)
    raise ModelError(f"{path} is not a GGUF file (it does not begin with 'GGUF'): give a GGUF file or a model folder")
