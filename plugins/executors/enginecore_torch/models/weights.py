"""Streaming a checkpoint into a model: every tensor must be expected, of the right shape, and come once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from enginecore.errors import ModelError
from enginecore_models.source import ModelSource


@dataclass(frozen=True, slots=True)
class Target:
    """Where one checkpoint tensor goes.

    Attributes:
        shape: What the whole tensor must be.
        load: Copies the part to its place; the tensor is not kept. None: this rank reads nothing of it.
        part: Which part of it this rank reads; () is all of it.
        optional: The model works without it.
    """

    shape: tuple[int, ...]
    load: Callable[[torch.Tensor], object] | None
    part: tuple[slice, ...] = ()
    optional: bool = False


def load_weights(source: ModelSource, dtype: torch.dtype, targets: Mapping[str, Target]) -> None:
    """Feed tensors by name to their targets, no more of each than its target asks for.

    Raises:
        ModelError: a tensor is unknown, comes twice, has another shape than the configuration says, or is missing.
    """
    where = f"model {source.name!r} ({source.path})"
    missing = dict(targets)

    def part_of(name: str, shape: tuple[int, ...]) -> tuple[slice, ...] | None:
        target = missing.pop(name, None)
        if target is None:
            problem = "comes twice" if name in targets else "belongs to nothing in this architecture"
            raise ModelError(f"tensor {name!r} of {where} {problem}")
        if shape != target.shape:
            raise ModelError(
                f"tensor {name!r} of {where} has shape {list(shape)}, "
                f"but the model's configuration asks for {list(target.shape)}"
            )
        return None if target.load is None else target.part

    for name, tensor in source.weights(dtype, part_of):
        if (load := targets[name].load) is not None:
            load(tensor)
    if absent := [name for name, target in missing.items() if not target.optional]:
        shown = ", ".join(repr(name) for name in absent[:5])
        raise ModelError(f"{len(absent)} tensors are missing from {where}: {shown}{', ...' if absent[5:] else ''}")
