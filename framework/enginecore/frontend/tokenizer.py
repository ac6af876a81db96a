"""The tokenizer that the settings name, loaded when a request first needs it."""

import threading
from collections.abc import Callable

from enginecore.interfaces import Tokenizer
from enginecore.plugin import TokenizerContext
from enginecore.settings import Loaded


def load_tokenizer(loaded: Loaded) -> Tokenizer:
    """The tokenizer, made by the component that `tokenization.use` names.

    Raises:
        EngineCoreError: it cannot be loaded; says why.
    """
    settings = loaded.settings
    context = TokenizerContext(model=settings.model, tokenizer=settings.tokenizer)
    tokenizer: Tokenizer = loaded.build("tokenizer", context)
    return tokenizer


class LazyTokenizer:
    """Gives the tokenizer, and loads it when first called. Thread-safe; loads it once."""

    def __init__(self, load: Callable[[], Tokenizer]) -> None:
        self._load = load
        self._tokenizer: Tokenizer | None = None
        self._loading = threading.Lock()

    @property
    def is_loaded(self) -> bool:
        """Whether a call returns at once."""
        return self._tokenizer is not None

    def __call__(self) -> Tokenizer:
        if self._tokenizer is None:
            with self._loading:
                if self._tokenizer is None:
                    self._tokenizer = self._load()
        return self._tokenizer
