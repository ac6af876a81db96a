"""The interface of models, and the context from which an architecture makes one."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from enginecore_models.config import ModelConfig
from enginecore_torch.attention.interface import AttentionBackend, AttentionFactory
from enginecore_torch.models.weights import CheckpointTensor
from enginecore_torch.ops.interface import Ops
from enginecore_torch.parallel.communicator import Communicator
from enginecore_torch.parallel.layout import Shard

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelContext:
    """For components of kind `model`: one rank's share of a model.

    Attributes:
        config: The model's configuration.
        shard: What this rank holds.
        communicator: This rank's end of the communication within and between stages.
        ops: The operations between matrix products.
        new_attention: Makes the chosen attention backend.
        block_size: Tokens per KV block.
        num_positions: Positions that a token may have: 0 to num_positions - 1.
        dtype: Type of weights and activations.
        device: Where the model runs.
    """

    config: ModelConfig
    shard: Shard
    communicator: Communicator
    ops: Ops
    new_attention: AttentionFactory
    block_size: int
    num_positions: int
    dtype: "torch.dtype"
    device: "torch.device"


class Model(ABC):
    """A model, or one rank's share of it. Built without weights; `tensors` says where they go."""

    @property
    @abstractmethod
    def attention(self) -> AttentionBackend:
        """The backend of the layers, whose KV caches it lays out."""

    @property
    @abstractmethod
    def layer_names(self) -> tuple[str, ...]:
        """Names of the layers on this rank that have a KV cache, in order."""

    @property
    @abstractmethod
    def tensors(self) -> Mapping[str, CheckpointTensor]:
        """Every tensor of the checkpoint by its name, those of other ranks too."""

    @abstractmethod
    def new_hidden(self, num_tokens: int) -> "torch.Tensor":
        """Room for the input of a stage: [num_tokens, hidden], uninitialised."""

    @abstractmethod
    def embed(self, token_ids: "torch.Tensor") -> "torch.Tensor":
        """The first layer's input: int64 [tokens] to [tokens, hidden]. On the first stage."""

    @abstractmethod
    def forward(
        self,
        residual: "torch.Tensor",
        positions: "torch.Tensor",
        kv_caches: Sequence[Any],
        metadata: Any,
        wanted: "torch.Tensor",
    ) -> "torch.Tensor":
        """One step over a flat batch of tokens, through the layers on this rank.

        Args:
            residual: [tokens, hidden], overwritten.
            positions: int64 [tokens].
            kv_caches: One per name in `layer_names`.
            metadata: The step's, from the attention backend.
            wanted: int64 [n], the tokens whose hidden states are asked for.

        Returns: [n, hidden], normed; on every stage but the last the next stage's input: [tokens,
            hidden].
        """

    @abstractmethod
    def compute_logits(self, hidden: "torch.Tensor") -> "torch.Tensor":
        """[n, hidden] to [n, rows of the vocabulary on this rank]. On the last stage."""
