"""Hints for misspelt names."""

from collections.abc import Iterable
from difflib import get_close_matches


def closest(name: str, names: Iterable[str], prefix: str = "", cutoff: float = 0.6) -> str:
    """The end of a sentence, "; did you mean ...?", with names spelt like `name`; else empty.

    Args:
        name: As it was spelt.
        names: Right spellings.
        prefix: What the names that are found are shown with.
        cutoff: How alike they must be, from 0 to 1. Names that begin alike need more.
    """
    close = [prefix + match for match in get_close_matches(name, list(names), n=3, cutoff=cutoff)]
    return f"; did you mean {' or '.join(close)}?" if close else ""
