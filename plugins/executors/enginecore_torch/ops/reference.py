"""The operations between matrix products in torch: the reference, on every device."""

import torch
from torch.nn import functional


class TorchOps:
    """Reference."""

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        return (wide * scale * weight.float()).to(x.dtype)

    def add_rms_norm(self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        residual += x
        return self.rms_norm(residual, weight, eps)

    def rotate(self, x: torch.Tensor, positions: torch.Tensor, table: torch.Tensor) -> None:
        cos, sin = table[positions].unsqueeze(1).chunk(2, dim=-1)
        first, second = x.float().chunk(2, dim=-1)
        x.copy_(torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1))

    def silu_and_mul(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = x.float().chunk(2, dim=-1)
        return (functional.silu(gate) * up).to(x.dtype)
