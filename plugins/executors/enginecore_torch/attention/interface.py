"""The interface of attention backends."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from enginecore.errors import ConfigurationError
from enginecore.plugin import Catalog

if TYPE_CHECKING:
    import numpy as np
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionNeeds:
    """What a model's layers need of attention, on one rank.

    Fields with a default are optional features.

    Attributes:
        num_heads: Query heads on this rank.
        num_kv_heads: Key and value heads on this rank; `num_heads / num_kv_heads` query heads share
            one.
        head_dim: Width of a head.
        block_size: Tokens per KV block.
        dtype: Type of queries, keys, values and the KV cache.
        device: Where all of them are.
        window: Tokens that a token attends to at most, itself included; None: all before it.
        soft_cap: Scores s become `soft_cap * tanh(s / soft_cap)`; None: they stay.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    dtype: "torch.dtype"
    device: "torch.device"
    window: int | None = None
    soft_cap: float | None = None

    @property
    def group_size(self) -> int:
        """Query heads per KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def features(self) -> dict[str, Any]:
        """Optional features that are asked for, by name."""
        optional = {f.name: f.default for f in fields(self) if f.default is not MISSING}
        return {name: value for name, no in optional.items() if (value := getattr(self, name)) != no}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionContext:
    """For components of kind `attention`.

    Attributes:
        needs: What the backend must be able to do.
        catalog: The active components, for a backend that chooses another one.
    """

    needs: AttentionNeeds
    catalog: Catalog


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """One step, on the host: the requests' tokens one after the other, without padding.

    Attributes:
        query_starts: int32 [requests + 1]: where each request's tokens start in the batch.
        seq_lens: int32 [requests]: tokens of each request after this step; its tokens here are the
            last of them.
        block_tables: int32 [requests, width]: its blocks in order of position; entries past its
            length are arbitrary.
    """

    query_starts: "np.ndarray"
    seq_lens: "np.ndarray"
    block_tables: "np.ndarray"


class AttentionBackend(ABC):
    """Causal attention over a paged KV cache, whose layout is the backend's own.

    A backend that exists can do what its needs say: the constructor refuses the others. `prepare`
    runs once per step, `forward` once per layer.

    Attributes:
        name: How logs and `collective_rpc` call the backend.
        supported_features: Names of the optional features of `AttentionNeeds` that this backend
            implements.
    """

    name: ClassVar[str]
    supported_features: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, needs: AttentionNeeds) -> None:
        """Keep the needs.

        Raises:
            ConfigurationError: the backend cannot do what they say; gives its objections.
        """
        if objections := [*self._unsupported(needs), *self.objections(needs)]:
            raise ConfigurationError(f"attention backend {self.name!r}: {'; '.join(objections)}")
        self.needs = needs

    @classmethod
    def _unsupported(cls, needs: AttentionNeeds) -> list[str]:
        """A feature that the backend has never heard of must not be passed over."""
        return [
            f"it does not support {name} = {value!r}"
            for name, value in needs.features.items()
            if name not in cls.supported_features
        ]

    @classmethod
    def objections(cls, needs: AttentionNeeds) -> list[str]:
        """Why the backend cannot serve these needs, a sentence each; empty: it can.

        Optional features that are not among `supported_features` are refused without being asked
        here.
        """
        return []

    @property
    @abstractmethod
    def page_size_bytes(self) -> int:
        """Bytes that one block of one layer takes, keys and values together."""

    @abstractmethod
    def new_kv_cache(self, num_blocks: int) -> Any:
        """The KV cache of one layer. Memory that no step writes need not be touched."""

    @abstractmethod
    def prepare(self, batch: AttentionBatch) -> Any:
        """The metadata of a step: what `forward` needs to know of it."""

    @abstractmethod
    def forward(
        self, query: "torch.Tensor", key: "torch.Tensor", value: "torch.Tensor", kv_cache: Any, metadata: Any
    ) -> "torch.Tensor":
        """Write the step's keys and values, then let every token attend to all up to itself.

        Writes the slots of the step's tokens only.

        Args:
            query: [tokens, num_heads, head_dim]. The heads of a token are dense, tokens may be
                strided.
            key: [tokens, num_kv_heads, head_dim], likewise.
            value: Laid out as key.
            kv_cache: The layer's, from `new_kv_cache`.
            metadata: The step's, from `prepare`.

        Returns:
            [tokens, num_heads * head_dim], dense.
        """


AttentionFactory = Callable[[AttentionNeeds], AttentionBackend]
"""Makes the chosen backend. Raises ConfigurationError where it cannot serve the needs."""
