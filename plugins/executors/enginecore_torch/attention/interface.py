"""The attention seam: what a backend gets and must give. The layout of the KV cache is the backend's own."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What the layers of a model have in common. `num_heads / num_kv_heads` query heads share a KV head."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    dtype: torch.dtype
    device: torch.device

    @property
    def group_size(self) -> int:
        """Query heads per KV head."""
        return self.num_heads // self.num_kv_heads


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """One step, on the host: requests one after the other in a flat batch of tokens, no padding.

    Attributes:
        query_starts: int32 [requests + 1]: where each request's tokens start in the batch.
        seq_lens: int32 [requests]: tokens of each request after this step; its tokens here are the last of them.
        block_tables: int32 [requests, width]: its blocks in order of position; what is past its length is not read.
    """

    query_starts: np.ndarray
    seq_lens: np.ndarray
    block_tables: np.ndarray


class AttentionBackend(Protocol):
    """Causal attention over a paged KV cache. `prepare` runs once per step, `forward` once per layer."""

    @property
    def name(self) -> str:
        """How settings call it."""
        ...

    @property
    def page_size_bytes(self) -> int:
        """Bytes that one block of one layer takes, keys and values together."""
        ...

    def new_kv_cache(self, num_blocks: int) -> Any:
        """The KV cache of one layer. Memory that no step writes need not be touched."""
        ...

    def prepare(self, batch: AttentionBatch) -> Any:
        """Whatever `forward` needs to know of the step."""
        ...

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, kv_cache: Any, metadata: Any
    ) -> torch.Tensor:
        """Write the step's keys and values to their slots, then let every token attend to all up to itself.

        query: [tokens, num_heads, head_dim]; key, value: [tokens, num_kv_heads, head_dim]. The heads of a token are
        dense, tokens may be strided: key and value alike, query as it likes.
        Writes the slots of the step's tokens only. Returns [tokens, num_heads * head_dim].
        """
        ...
