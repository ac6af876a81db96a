"""The weight of an RMS norm."""

import torch

from enginecore_torch.models.interface import ModelContext
from enginecore_torch.models.weights import Axis, CheckpointTensor


class RMSNorm:
    """The weight of one RMS norm, which every rank holds; `Ops` has the arithmetic.

    Attributes:
        weight: [size].
    """

    def __init__(self, context: ModelContext, name: str, size: int) -> None:
        """`name`: of the tensor, without ".weight"."""
        self._name = name
        self.weight = torch.empty(size, dtype=context.dtype, device=context.device)

    @property
    def tensors(self) -> dict[str, CheckpointTensor]:
        """The checkpoint's tensor."""
        return {f"{self._name}.weight": CheckpointTensor((Axis.whole(len(self.weight)),), self.weight.copy_)}
