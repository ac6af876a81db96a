"""Choosing the attention backend and the small operations that settings ask for."""

from typing import Literal

import torch

from enginecore_torch.attention import AttentionBackend, AttentionShape
from enginecore_torch.ops import Ops, TorchOps
from enginecore_torch.torch_attention import TorchAttention

Choice = Literal["auto", "native", "torch"]


def make_attention(choice: Choice, shape: AttentionShape) -> AttentionBackend:
    """The attention backend called `choice`; "auto" is the fastest that works here."""
    return TorchAttention(shape)


def make_ops(choice: Choice, device: torch.device) -> Ops:
    """The small operations called `choice`."""
    return TorchOps()
