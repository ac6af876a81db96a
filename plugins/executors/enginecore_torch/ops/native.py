"""The operations between matrix products in C: one call each, where torch takes five to ten."""

import ctypes

import torch

from enginecore_torch.native.build import declare

_POINTER, _LONG, _FLOAT = ctypes.c_void_p, ctypes.c_long, ctypes.c_float


class NativeOps:
    """On the CPU, for tensors of the dtype that the kernels store; the last dimension is dense."""

    def __init__(self, kernels: ctypes.CDLL) -> None:
        self._rms_norm = declare(kernels, "rms_norm", *[_POINTER] * 3, _LONG, _LONG, _FLOAT)
        self._add_rms_norm = declare(kernels, "add_rms_norm", *[_POINTER] * 4, _LONG, _LONG, _FLOAT)
        self._rotate = declare(kernels, "rotate", _POINTER, _LONG, _POINTER, _POINTER, *[_LONG] * 3)
        self._silu_and_mul = declare(kernels, "silu_and_mul", *[_POINTER] * 2, *[_LONG] * 2)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        rows, size = x.shape
        out = torch.empty_like(x)
        self._rms_norm(x.data_ptr(), weight.data_ptr(), out.data_ptr(), rows, size, eps)
        return out

    def add_rms_norm(self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        rows, size = x.shape
        out = torch.empty_like(x)
        self._add_rms_norm(x.data_ptr(), residual.data_ptr(), weight.data_ptr(), out.data_ptr(), rows, size, eps)
        return out

    def rotate(self, x: torch.Tensor, positions: torch.Tensor, table: torch.Tensor) -> None:
        rows, heads, head_dim = x.shape
        self._rotate(x.data_ptr(), x.stride(0), positions.data_ptr(), table.data_ptr(), rows, heads, head_dim)

    def silu_and_mul(self, x: torch.Tensor) -> torch.Tensor:
        rows, size = x.shape
        out = x.new_empty((rows, size // 2))
        self._silu_and_mul(x.data_ptr(), out.data_ptr(), rows, size // 2)
        return out
