"""The communication of ranks within a step, and its form for a single rank."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch


class Communicator(Protocol):
    """One rank's end. Every rank makes the same calls in the same order."""

    def all_reduce(self, x: "torch.Tensor") -> None:
        """Add up, in place, over the ranks of the stage."""
        ...

    def gather(self, x: "torch.Tensor", widths: Sequence[int]) -> "torch.Tensor | None":
        """Columns [n, widths[i]] of every rank of the stage, on its first rank; None elsewhere."""
        ...

    def broadcast(self, x: "torch.Tensor") -> None:
        """Overwrite x, on all ranks of the stage, with what its first rank has there."""
        ...

    def send(self, x: "torch.Tensor") -> None:
        """To the next stage. x is not changed afterwards."""
        ...

    def receive(self, x: "torch.Tensor") -> None:
        """From the stage before, into x."""
        ...


class SingleRankCommunicator:
    """The communicator of a model on one rank."""

    def all_reduce(self, x: "torch.Tensor") -> None:
        """Nothing to add."""

    def gather(self, x: "torch.Tensor", widths: Sequence[int]) -> "torch.Tensor | None":
        return x

    def broadcast(self, x: "torch.Tensor") -> None:
        """No other rank."""

    def send(self, x: "torch.Tensor") -> None:
        raise RuntimeError("there is no next stage")

    def receive(self, x: "torch.Tensor") -> None:
        raise RuntimeError("there is no stage before")
