"""Which model classes there are, by the architecture's Hugging Face name."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import torch

from enginecore.errors import ModelError
from enginecore_torch.models.llama import LlamaForCausalLM
from enginecore_torch.models.weights import Target


class Model(Protocol):
    """What the runner needs of a model, or of one rank's share of it."""

    @property
    def layer_names(self) -> tuple[str, ...]:
        """Names of the layers here that have a KV cache, in order."""
        ...

    @property
    def targets(self) -> Mapping[str, Target]:
        """Where the checkpoint's tensors go, by name."""
        ...

    def new_hidden(self, num_tokens: int) -> torch.Tensor:
        """Room for what a stage takes in, of whatever content."""
        ...

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """What the first layer takes in; see `LlamaForCausalLM.embed`."""
        ...

    def forward(
        self,
        residual: torch.Tensor,
        positions: torch.Tensor,
        kv_caches: Sequence[Any],
        metadata: Any,
        wanted: torch.Tensor,
    ) -> torch.Tensor:
        """What the layers here make of it; see `LlamaForCausalLM.forward`."""
        ...

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[n, hidden] to [n, rows of the vocabulary that are here]."""
        ...


ARCHITECTURES: Mapping[str, Callable[..., Model]] = MappingProxyType({"LlamaForCausalLM": LlamaForCausalLM})


def find_architecture(name: str, model: str) -> Callable[..., Model]:
    """The class for an architecture; `model` is named in the error.

    Raises:
        ModelError: there is none; lists those that there are.
    """
    if name not in ARCHITECTURES:
        raise ModelError(
            f"architecture {name!r} of model {model!r} is not supported; supported are: {', '.join(ARCHITECTURES)}"
        )
    return ARCHITECTURES[name]
