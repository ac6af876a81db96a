"""Choosing the attention backend and the small operations that settings ask for."""

import ctypes
import logging
from typing import Literal

from enginecore.errors import ConfigurationError
from enginecore_torch.attention.interface import AttentionBackend, AttentionShape
from enginecore_torch.attention.native import NativeAttention
from enginecore_torch.attention.sdpa import TorchAttention
from enginecore_torch.native.build import load_kernels
from enginecore_torch.ops.interface import Ops
from enginecore_torch.ops.native import NativeOps
from enginecore_torch.ops.reference import TorchOps

logger = logging.getLogger(__name__)

Choice = Literal["auto", "native", "torch"]


def make_backends(attention: Choice, ops: Choice, shape: AttentionShape) -> tuple[AttentionBackend, Ops]:
    """The attention backend and the operations of these names; "auto" is the fastest that works here.

    Raises:
        ConfigurationError: one was asked for by name and does not work here.
    """
    kernels = _find_kernels((attention, ops), shape)
    return (
        TorchAttention(shape) if kernels is None or attention == "torch" else NativeAttention(shape, kernels),
        TorchOps() if kernels is None or ops == "torch" else NativeOps(kernels),
    )


def _find_kernels(choices: tuple[Choice, ...], shape: AttentionShape) -> ctypes.CDLL | None:
    if all(choice == "torch" for choice in choices):
        return None
    try:
        return load_kernels(shape.dtype, shape.device)
    except ConfigurationError as error:
        if "native" in choices:
            raise
        if shape.device.type == "cpu":
            logger.warning("going on with torch in place of the native kernels, which is slower: %s", error)
        return None
