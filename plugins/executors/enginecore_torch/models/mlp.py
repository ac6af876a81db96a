"""The gated MLP."""

import torch

from enginecore.errors import ModelError
from enginecore_torch.models.interface import ModelContext
from enginecore_torch.models.linear import Linear
from enginecore_torch.models.weights import Axis, CheckpointTensor


class GatedMLP:
    """Gate and up in one product, `silu(gate) * up`, and the down product."""

    def __init__(self, context: ModelContext, name: str, *, bias: bool = False) -> None:
        """`name`: of the layer's MLP in the checkpoint, e.g. "model.layers.0.mlp".

        Raises:
            ModelError: the activation is not SiLU.
        """
        config = context.config
        if config.hidden_act != "silu":
            raise ModelError(f"hidden_act {config.hidden_act!r} is not supported by {config.architecture}; 'silu' is")
        hidden, inner = Axis.whole(config.hidden_size), Axis(config.intermediate_size, context.shard.inner)
        self._ops = context.ops
        self._gate_up = Linear(context, hidden, {f"{name}.gate_proj": inner, f"{name}.up_proj": inner}, bias=bias)
        self._down = Linear(context, inner, {f"{name}.down_proj": hidden}, bias=bias)

    @property
    def tensors(self) -> dict[str, CheckpointTensor]:
        """The checkpoint's tensors."""
        return self._gate_up.tensors | self._down.tensors

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, hidden] to this rank's summand of [tokens, hidden]."""
        return self._down(self._ops.silu_and_mul(self._gate_up(x)))
