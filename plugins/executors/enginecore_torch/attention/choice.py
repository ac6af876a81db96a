"""The choice of the attention backend."""

import logging
from typing import Literal

from enginecore.errors import ConfigurationError
from enginecore_torch.attention.interface import AttentionBackend, AttentionNeeds
from enginecore_torch.attention.native import NativeAttention
from enginecore_torch.attention.sdpa import TorchAttention

logger = logging.getLogger(__name__)


def choose_attention(choice: Literal["auto", "native", "torch"], needs: AttentionNeeds) -> AttentionBackend:
    """The backend of this name; "auto" is native where it can serve the needs, else torch.

    Raises:
        ConfigurationError: native was asked for by name and cannot serve the needs.
    """
    if choice == "torch":
        return TorchAttention(needs)
    try:
        return NativeAttention(needs)
    except ConfigurationError as error:
        if choice == "native":
            raise
        if needs.device.type == "cpu":
            logger.warning("attention: torch, which is slower (%s)", error)
        return TorchAttention(needs)
