"""Streaming a checkpoint into a model: every tensor must be expected, of the right shape, and come once."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch

from enginecore.errors import ModelError


@dataclass(frozen=True, slots=True)
class Target:
    """Where one checkpoint tensor goes.

    Attributes:
        shape: What it must be.
        load: Copies it to its place; the tensor is not kept.
        optional: The model works without it.
    """

    shape: tuple[int, ...]
    load: Callable[[torch.Tensor], object]
    optional: bool = False


def load_weights(weights: Iterable[tuple[str, torch.Tensor]], targets: Mapping[str, Target], where: str) -> None:
    """Feed tensors by name to their targets. `where` names the model in errors.

    Raises:
        ModelError: a tensor is unknown, comes twice, has another shape than the configuration says, or is missing.
    """
    missing = dict(targets)
    for name, tensor in weights:
        target = missing.pop(name, None)
        if target is None:
            problem = "comes twice" if name in targets else "belongs to nothing in this architecture"
            raise ModelError(f"tensor {name!r} of {where} {problem}")
        if tuple(tensor.shape) != target.shape:
            raise ModelError(
                f"tensor {name!r} of {where} has shape {list(tensor.shape)}, "
                f"but the model's configuration asks for {list(target.shape)}"
            )
        target.load(tensor)
    if absent := [name for name, target in missing.items() if not target.optional]:
        shown = ", ".join(repr(name) for name in absent[:5])
        raise ModelError(f"{len(absent)} tensors are missing from {where}: {shown}{', ...' if absent[5:] else ''}")
