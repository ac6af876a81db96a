"""Hints for misspelt names."""

from collections.abc import Iterable
from difflib import get_close_matches


def closest(name: str, names: Iterable[str], prefix: str = "") -> str:
    """The end of a sentence, "; did you mean ...?", with names spelt like `name`; else empty.

    `prefix` is what the names that are found are shown with.
    """
    close = [prefix + match for match in get_close_matches(name, list(names), n=3)]
    return f"; did you mean {' or '.join(close)}?" if close else ""
