"""The Qwen2 architecture: models whose config.json names `Qwen2ForCausalLM`, Qwen2 and Qwen2.5 among them."""

from enginecore.plugin import Component, ComponentSettings, hookimpl
from enginecore_torch.models.interface import Model, ModelContext


def make_qwen2(settings: ComponentSettings, context: ModelContext) -> Model:
    from qwen2_architecture.model import Qwen2ForCausalLM  # imports torch: only once a model asks for it

    return Qwen2ForCausalLM(context)


@hookimpl
def enginecore_components() -> list[Component]:
    return [
        Component(
            kind="model",
            name="Qwen2ForCausalLM",
            factory=make_qwen2,
            summary="Llama with biases on queries, keys and values.",
        )
    ]
