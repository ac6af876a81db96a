"""The Qwen3 architecture as a third party adds it: one module beside Llama, on shared layer parts."""

from enginecore.errors import ModelError
from enginecore.plugin import Component, ComponentSettings
from enginecore_torch.models.interface import ModelContext


def make(settings: ComponentSettings, context: ModelContext):
    from enginecore_torch.models.decoder import Decoder
    from enginecore_torch.models.mlp import GatedMLP
    from enginecore_torch.models.self_attention import SelfAttention

    class Qwen3ForCausalLM(Decoder):
        """Llama with a norm on each head of queries and keys."""

        def new_self_attention(self, name):
            bias = self.config.attention_bias
            return SelfAttention(
                self.context, name, self.attention, self.rotary, bias=bias, output_bias=bias, head_norms=True
            )

        def new_mlp(self, name):
            return GatedMLP(self.context, name)

    if context.config.fields.get("use_sliding_window"):
        raise ModelError("sliding windows are not supported by Qwen3ForCausalLM here: set use_sliding_window = false")
    return Qwen3ForCausalLM(context)


QWEN3 = Component(kind="model", name="Qwen3ForCausalLM", factory=make, summary="Llama with norms on heads")
