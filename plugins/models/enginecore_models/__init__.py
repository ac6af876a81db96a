"""Models from folders, GGUF files and the hub, for executors, and the tokenizer `auto`.

Executors use `enginecore_models.source.find_model` and `enginecore_models.config.ModelConfig`.
"""

from typing import Any

from enginecore.plugin import Component, ComponentSettings, TokenizerContext, hookimpl


def _make_auto(settings: ComponentSettings, context: TokenizerContext) -> Any:
    from enginecore_models.tokenizer import load_tokenizer

    return load_tokenizer(context.tokenizer or context.model)


@hookimpl
def enginecore_components() -> list[Component]:
    """The tokenizer `auto`."""
    summary = "The model's own tokenizer.json or GGUF vocabulary, run by the tokenizers library."
    return [Component(kind="tokenizer", name="auto", factory=_make_auto, summary=summary)]
