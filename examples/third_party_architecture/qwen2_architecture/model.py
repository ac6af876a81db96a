"""Qwen2: Llama with biases on queries, keys and values, whatever config.json says of biases."""

from enginecore.errors import ModelError
from enginecore_torch.models.decoder import Decoder
from enginecore_torch.models.interface import ModelContext
from enginecore_torch.models.mlp import GatedMLP
from enginecore_torch.models.self_attention import SelfAttention


class Qwen2ForCausalLM(Decoder):
    """A decoder of the shared parts.

    Raises:
        ModelError: the model needs sliding windows.
    """

    def __init__(self, context: ModelContext) -> None:
        if context.config.fields.get("use_sliding_window"):
            raise ModelError("use_sliding_window = true is not supported by Qwen2ForCausalLM here; false is")
        super().__init__(context)

    def new_self_attention(self, name: str) -> SelfAttention:
        return SelfAttention(self.context, name, self.attention, self.rotary, bias=True)

    def new_mlp(self, name: str) -> GatedMLP:
        return GatedMLP(self.context, name)
