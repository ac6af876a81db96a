"""The weights of a Hugging Face folder, in one file or in shards, memory-mapped."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from safetensors import SafetensorError, safe_open

from enginecore.errors import ModelError

if TYPE_CHECKING:
    import torch

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

# names of the safetensors format -> torch's
DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}

PartOf = Callable[[str, tuple[int, ...]], tuple[slice, ...] | None]
"""From a tensor's name and whole shape to the part that is wanted; () is all, None nothing."""

_REOPEN_AFTER = 64 << 20
"""Bytes read of a mapped file after which it is mapped anew, which frees the touched pages."""


def everything(name: str, shape: tuple[int, ...]) -> tuple[slice, ...]:
    """The `PartOf` that wants all tensors whole."""
    return ()


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


class Checkpoint:
    """The weight files of a folder, checked against one another without reading a weight.

    Raises:
        ModelError: no weights, a missing or truncated shard, a tensor that is not where the index
            says.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names_by_file = {file: self._check(file, names) for file, names in self._find().items()}

    @cached_property
    def dtype(self) -> str:
        """What most tensors are stored in, as torch names it."""
        counts: dict[str, int] = {}
        for file, names in self._names_by_file.items():
            with _open(file, "numpy") as tensors:
                for name in names:
                    dtype = _stored_dtype(tensors, name, file)
                    counts[dtype] = counts.get(dtype, 0) + 1
        return max(counts, key=lambda dtype: counts[dtype])

    def weights(self, dtype: "torch.dtype", part_of: PartOf = everything) -> "Iterator[tuple[str, torch.Tensor]]":
        """Name and wanted part, cast to `dtype`: without a cast, a private mapping of the file."""
        for file, names in self._names_by_file.items():
            tensors, read = _open(file, "pt"), 0
            for name in names:
                shape = tuple(tensors.get_slice(name).get_shape())
                part = part_of(name, shape)
                if part is None:
                    continue
                if read > _REOPEN_AFTER:
                    tensors, read = _open(file, "pt"), 0
                read += prod(shape) * dtype.itemsize
                yield name, (tensors.get_slice(name)[part] if part else tensors.get_tensor(name)).to(dtype)

    def _find(self) -> Mapping[Path, set[str]]:
        """Weight files, with the names that the index promises for each; without an index none."""
        index, single = self._folder / INDEX_FILE, self._folder / WEIGHTS_FILE
        if single.exists():
            return {single: set()}
        if not index.exists():
            raise ModelError(self._no_weights())
        try:
            weight_map = msgspec.json.decode(index.read_bytes(), type=_Index).weight_map
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ModelError(f"{index} cannot be used: {error}") from error
        files: dict[Path, set[str]] = {}
        for name, file in weight_map.items():
            files.setdefault(self._folder / file, set()).add(name)
        return files

    def _no_weights(self) -> str:
        wanted = f"{self._folder} has neither {WEIGHTS_FILE} nor {INDEX_FILE}"
        ggufs = sorted(self._folder.glob("*.gguf"))
        if ggufs:
            return f"{wanted}, but GGUF files: give the file itself, e.g. {ggufs[0]}"
        pickles = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in self._folder.glob(pattern))
        if pickles:
            return (
                f"{wanted}; {', '.join(pickles)} holds pickled code and is never loaded: convert it to safetensors "
                "(AutoModelForCausalLM.from_pretrained(folder).save_pretrained(folder) with transformers)"
            )
        return f"{wanted}: download the model's safetensors files, or give a folder that holds them"

    def _check(self, file: Path, promised: set[str]) -> list[str]:
        if not file.exists():
            raise ModelError(f"{file} is missing, though {INDEX_FILE} names it: download the model again")
        with _open(file, "numpy") as tensors:
            names: list[str] = list(tensors.keys())
        absent = sorted(promised - set(names))
        if absent:
            raise ModelError(
                f"{file} does not hold {absent[0]!r} ({len(absent)} tensors are absent), though {INDEX_FILE} names it: "
                "shards and index are of different downloads; download the model again"
            )
        if not names:
            raise ModelError(f"{file} holds no tensors: download the model again")
        return names


def _open(file: Path, framework: str) -> Any:
    try:
        return safe_open(file, framework=framework)
    except (SafetensorError, OSError) as error:
        size = file.stat().st_size
        raise ModelError(
            f"{file} ({size} bytes) is truncated or not a safetensors file ({error}): download the model again"
        ) from error


def _stored_dtype(tensors: Any, name: str, file: Path) -> str:
    stored = tensors.get_slice(name).get_dtype()
    if stored not in DTYPES:
        raise ModelError(
            f"{file}: {name!r} is stored as {stored}, which is not supported; weights must be one of "
            f"{', '.join(DTYPES)}"
        )
    return DTYPES[stored]


def write_safetensors(
    file: Path,
    dtype: "torch.dtype",
    shapes: Mapping[str, tuple[int, ...]],
    weights: "Iterable[tuple[str, torch.Tensor]]",
) -> None:
    """Write a safetensors file from a stream of tensors, one in memory at a time.

    The safetensors package writes only what is in memory as a whole. Format: 8 bytes with the
    header's length, the header in JSON, padded to 8 bytes, then the tensors
    (https://github.com/huggingface/safetensors#format).

    Args:
        file: Is created or replaced.
        dtype: Type of all tensors.
        shapes: Shapes of all tensors, in the order in which `weights` gives them.
        weights: Name and tensor, contiguous, on the CPU.
    """
    import torch

    stored = {name: code for code, name in DTYPES.items()}[str(dtype).removeprefix("torch.")]
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + prod(shape) * dtype.itemsize
        header[name] = {"dtype": stored, "shape": shape, "data_offsets": (begin, end)}
    encoded = msgspec.json.encode(header)
    encoded += b" " * (-len(encoded) % 8)
    with file.open("wb") as stream:
        stream.write(len(encoded).to_bytes(8, "little") + encoded)
        for _, tensor in weights:
            tensor.view(torch.uint8).numpy().tofile(stream)
