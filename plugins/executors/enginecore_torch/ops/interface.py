"""The interface of the operations between matrix products."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch


class Ops(Protocol):
    """What a decoder layer needs beside matrix products and attention.

    Arithmetic is in float32, storage in the model's dtype.
    """

    def rms_norm(self, x: "torch.Tensor", weight: "torch.Tensor", eps: float) -> "torch.Tensor":
        """Root-mean-square norm of each row of [tokens, hidden], times weight [hidden]."""
        ...

    def add_rms_norm(
        self, x: "torch.Tensor", residual: "torch.Tensor", weight: "torch.Tensor", eps: float
    ) -> "torch.Tensor":
        """Add x to the residual in place; the norm of the sum. All are [tokens, hidden]."""
        ...

    def rotate(self, x: "torch.Tensor", positions: "torch.Tensor", table: "torch.Tensor") -> None:
        """Rotary embedding, in place, on [tokens, heads, head_dim].

        The two halves of a head are paired, as in Hugging Face's checkpoints.

        positions: int64 [tokens]; table: float32 [positions, head_dim], cosines then sines.
        """
        ...

    def silu_and_mul(self, x: "torch.Tensor") -> "torch.Tensor":
        """silu(first half) * second half of the last dimension: [tokens, 2 n] to [tokens, n]."""
        ...
