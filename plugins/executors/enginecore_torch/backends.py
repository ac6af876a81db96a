"""Choosing the attention backend and the small operations that settings ask for."""

import logging
from typing import Literal

import torch

from enginecore.errors import ConfigurationError
from enginecore_torch.attention import AttentionBackend, AttentionShape
from enginecore_torch.native_attention import NativeAttention
from enginecore_torch.native_build import load_kernels
from enginecore_torch.native_ops import NativeOps
from enginecore_torch.ops import Ops, TorchOps
from enginecore_torch.torch_attention import TorchAttention

logger = logging.getLogger(__name__)

Choice = Literal["auto", "native", "torch"]


def make_attention(choice: Choice, shape: AttentionShape) -> AttentionBackend:
    """The attention backend called `choice`; "auto" is the fastest that works here.

    Raises:
        ConfigurationError: it was asked for by name and does not work here.
    """
    native = choice == "native" or (choice == "auto" and _native_works(shape.dtype, shape.device))
    return NativeAttention(shape) if native else TorchAttention(shape)


def make_ops(choice: Choice, dtype: torch.dtype, device: torch.device) -> Ops:
    """The small operations called `choice`; "auto" is the fastest that works here.

    Raises:
        ConfigurationError: they were asked for by name and do not work here.
    """
    if choice == "native" and device.type != "cpu":
        raise ConfigurationError(f'ops "native" run on the CPU, not on {device}; choose "torch"')
    native = choice == "native" or (choice == "auto" and _native_works(dtype, device))
    return NativeOps(dtype) if native else TorchOps()


def _native_works(dtype: torch.dtype, device: torch.device) -> bool:
    if device.type != "cpu":
        return False
    try:
        load_kernels(dtype)
    except ConfigurationError as error:
        logger.warning("going on with torch in place of the native kernels, which is slower: %s", error)
        return False
    return True
