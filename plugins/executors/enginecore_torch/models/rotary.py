"""Tables of rotary position embeddings (Su et al., 2021, https://arxiv.org/abs/2104.09864)."""

import math
from collections.abc import Mapping
from typing import Any

import torch

from enginecore.errors import ModelError


def rotary_table(
    head_dim: int, num_positions: int, theta: float, scaling: Mapping[str, Any] | None, device: torch.device
) -> torch.Tensor:
    """Cosines, then sines, of every position: float32 [num_positions, head_dim].

    Raises:
        ModelError: the scaling is of a type that is not supported, or lacks a field.
    """
    if head_dim % 2:
        raise ModelError(f"head_dim must be even for rotary embeddings, got {head_dim}")
    frequencies = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    kind = (scaling or {}).get("rope_type", (scaling or {}).get("type", "default"))
    if kind == "llama3":
        frequencies = _scale_llama3(frequencies, scaling or {})
    elif kind != "default":
        raise ModelError(f"rope_scaling type {kind!r} is not supported; supported are 'default' and 'llama3'")
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float64), frequencies)
    return torch.cat((angles.cos(), angles.sin()), dim=-1).to(device=device, dtype=torch.float32)


def _scale_llama3(frequencies: torch.Tensor, scaling: Mapping[str, Any]) -> torch.Tensor:
    """Frequencies as in Llama 3.1: slow ones are divided by `factor`, fast ones kept."""
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    if absent := [name for name in names if name not in scaling]:
        raise ModelError(f"rope_scaling of type 'llama3' lacks {', '.join(absent)}")
    factor, low, high, original = (float(scaling[name]) for name in names)
    # turns of each frequency within the original context
    turns = original * frequencies / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return frequencies * (kept + (1 - kept) / factor)
