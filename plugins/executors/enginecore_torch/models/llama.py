"""The Llama architecture."""

from enginecore_torch.models.decoder import Decoder
from enginecore_torch.models.mlp import GatedMLP
from enginecore_torch.models.self_attention import SelfAttention


class LlamaForCausalLM(Decoder):
    """RMS norms, rotary embeddings, grouped-query attention, gated SiLU MLP."""

    def new_self_attention(self, name: str) -> SelfAttention:
        bias = self.config.attention_bias
        return SelfAttention(self.context, name, self.attention, self.rotary, bias=bias, output_bias=bias)

    def new_mlp(self, name: str) -> GatedMLP:
        return GatedMLP(self.context, name, bias=self.config.mlp_bias)
