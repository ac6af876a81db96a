"""The kinds of component that models are made of: architectures and attention backends."""

from enginecore.plugin import KindSpec
from enginecore_torch.attention.interface import AttentionBackend, AttentionContext
from enginecore_torch.models.interface import Model, ModelContext

MODEL = KindSpec(
    name="model",
    summary="An architecture, by its name in config.json, that the executors with torch can run.",
    interface=Model,
    context=ModelContext,
)

ATTENTION = KindSpec(
    name="attention",
    summary="Attention over a paged KV cache, for the executors with torch.",
    interface=AttentionBackend,
    context=AttentionContext,
    table="attention",
    default="auto",
)
