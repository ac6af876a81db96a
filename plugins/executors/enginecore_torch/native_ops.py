"""The small operations in C. One call each, where torch takes five to ten and as many passes over memory."""

import ctypes

import torch

from enginecore_torch.native_build import load_kernels

_POINTER, _LONG, _FLOAT = ctypes.c_void_p, ctypes.c_long, ctypes.c_float


class NativeOps:
    """On the CPU, for tensors of one dtype whose last dimension is dense."""

    def __init__(self, dtype: torch.dtype) -> None:
        """Compile, if it is the first time here.

        Raises:
            ConfigurationError: the kernels cannot be compiled or loaded.
        """
        kernels = load_kernels(dtype)
        self._rms_norm, self._add_rms_norm = kernels.rms_norm, kernels.add_rms_norm
        self._rotate, self._silu_and_mul = kernels.rotate, kernels.silu_and_mul
        self._rms_norm.argtypes = [_POINTER] * 3 + [_LONG, _LONG, _FLOAT]
        self._add_rms_norm.argtypes = [_POINTER] * 4 + [_LONG, _LONG, _FLOAT]
        self._rotate.argtypes = [_POINTER, _LONG, _POINTER, _POINTER] + [_LONG] * 3
        self._silu_and_mul.argtypes = [_POINTER] * 2 + [_LONG] * 2
        for function in (self._rms_norm, self._add_rms_norm, self._rotate, self._silu_and_mul):
            function.restype = None

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        rows, size = x.shape
        out = torch.empty_like(x)
        self._rms_norm(x.data_ptr(), weight.data_ptr(), out.data_ptr(), rows, size, eps)
        return out

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> torch.Tensor:
        rows, size = x.shape
        out = torch.empty_like(x)
        self._add_rms_norm(
            x.data_ptr(), residual.data_ptr(), weight.data_ptr(), out.data_ptr(), rows, size, eps
        )
        return out

    def rotate(self, x: torch.Tensor, positions: torch.Tensor, table: torch.Tensor) -> None:
        rows, heads, head_dim = x.shape
        self._rotate(x.data_ptr(), x.stride(0), positions.data_ptr(), table.data_ptr(), rows, heads, head_dim)

    def silu_and_mul(self, x: torch.Tensor) -> torch.Tensor:
        rows, size = x.shape
        out = x.new_empty((rows, size // 2))
        self._silu_and_mul(x.data_ptr(), out.data_ptr(), rows, size // 2)
        return out
