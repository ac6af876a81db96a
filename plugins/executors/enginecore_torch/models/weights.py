"""The tensors of a checkpoint, each with its share of a rank and its loader; `load_weights`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from enginecore.errors import ModelError

if TYPE_CHECKING:
    import torch

    from enginecore_models.source import ModelSource

Load = Callable[["torch.Tensor"], object]
"""Copies a tensor, or the rank's part of it, to its place."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of a checkpoint tensor.

    Attributes:
        size: Size in the whole tensor.
        held: The indices that this rank holds.
    """

    size: int
    held: range

    @classmethod
    def whole(cls, size: int) -> "Axis":
        """A dimension that every rank holds."""
        return cls(size, range(size))

    @property
    def is_whole(self) -> bool:
        """Whether this rank holds all of it."""
        return len(self.held) == self.size

    @property
    def part(self) -> slice:
        """The same as an index."""
        return slice(None) if self.is_whole else slice(self.held.start, self.held.stop)

    def times(self, width: int) -> "Axis":
        """The dimension in which each index is so many entries wide: heads to columns."""
        return Axis(self.size * width, range(self.held.start * width, self.held.stop * width))


@dataclass(frozen=True, slots=True)
class CheckpointTensor:
    """One tensor of a checkpoint.

    Attributes:
        axes: Its dimensions, each with the part that this rank holds.
        load: Copies the part to its place; None: this rank reads nothing of it.
        optional: The model works without it.
    """

    axes: tuple[Axis, ...]
    load: Load | None
    optional: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole tensor."""
        return tuple(axis.size for axis in self.axes)

    @property
    def part(self) -> tuple[slice, ...]:
        """The part that this rank reads; () is all of it."""
        return () if all(axis.is_whole for axis in self.axes) else tuple(axis.part for axis in self.axes)


def unread(tensors: Mapping[str, CheckpointTensor]) -> dict[str, CheckpointTensor]:
    """The same tensors on a rank that reads nothing of them."""
    return {name: replace(tensor, load=None) for name, tensor in tensors.items()}


def load_weights(source: "ModelSource", dtype: "torch.dtype", tensors: Mapping[str, CheckpointTensor]) -> None:
    """Read a checkpoint, of each tensor only the part that this rank holds.

    Raises:
        ModelError: a tensor is unknown, comes twice, has another shape than the configuration says,
            or is missing.
    """
    where = f"model {source.name!r} ({source.path})"
    missing = dict(tensors)

    def part_of(name: str, shape: tuple[int, ...]) -> tuple[slice, ...] | None:
        tensor = missing.pop(name, None)
        if tensor is None:
            problem = "comes twice" if name in tensors else "belongs to nothing in this architecture"
            raise ModelError(f"tensor {name!r} of {where} {problem}")
        if shape != tensor.shape:
            raise ModelError(
                f"tensor {name!r} of {where} has shape {list(shape)}, "
                f"but the model's configuration asks for {list(tensor.shape)}"
            )
        return None if tensor.load is None else tensor.part

    for name, data in source.weights(dtype, part_of):
        if (load := tensors[name].load) is not None:
            load(data)
    if absent := [name for name, tensor in missing.items() if not tensor.optional]:
        shown = ", ".join(repr(name) for name in absent[:5])
        raise ModelError(f"{len(absent)} tensors are missing from {where}: {shown}{', ...' if absent[5:] else ''}")
