"""Builds the tokenizer that the settings name."""

from enginecore.core import build_component
from enginecore.interfaces import Tokenizer
from enginecore.plugin import TokenizerContext
from enginecore.settings import Loaded


def load_tokenizer(loaded: Loaded) -> Tokenizer:
    """The tokenizer, made by the component that `tokenization.use` names.

    Raises:
        EngineCoreError: it cannot be loaded; says why.
    """
    settings = loaded.settings
    choice = settings.component("tokenizer")
    component = loaded.registry.get("tokenizer", choice.name)
    tokenizer: Tokenizer = build_component(
        component, choice.settings, TokenizerContext(model=settings.model, tokenizer=settings.tokenizer)
    )
    return tokenizer
