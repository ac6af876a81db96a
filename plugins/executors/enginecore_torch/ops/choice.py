"""The choice of the operations between matrix products."""

import logging
from typing import Literal

import torch

from enginecore.errors import ConfigurationError
from enginecore_torch.native.build import load_kernels
from enginecore_torch.ops.interface import Ops
from enginecore_torch.ops.native import NativeOps
from enginecore_torch.ops.reference import TorchOps

logger = logging.getLogger(__name__)


def choose_ops(choice: Literal["auto", "native", "torch"], dtype: torch.dtype, device: torch.device) -> Ops:
    """The operations of this name; "auto" is native where it works, else torch.

    Raises:
        ConfigurationError: native was asked for by name and does not work here.
    """
    if choice == "torch":
        return TorchOps()
    try:
        return NativeOps(load_kernels(dtype, device))
    except ConfigurationError as error:
        if choice == "native":
            raise
        if device.type == "cpu":
            logger.warning("operations: torch, which is slower (native: %s)", error)
        return TorchOps()
