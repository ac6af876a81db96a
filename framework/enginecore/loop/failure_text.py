"""Text for failures that cross a process boundary: of bounded length, and in characters that any
codec carries.
"""

import traceback

from enginecore.errors import EngineDeadError, UtilityError
from enginecore.wire import Dead

LONGEST_LINE = 2000
LONGEST_TRACEBACK = 20_000
"""Characters that are sent; of a traceback the last ones, where the fault is."""


def dead_message(error: BaseException) -> Dead:
    """The last message of an engine core that ends by an error."""
    explained = isinstance(error, EngineDeadError)
    reason = error_text(error) if explained else f"the engine core has failed: {error_line(error)}"
    return Dead(reason, traceback_text(error))


def error_text(error: BaseException) -> str:
    """The message of an error."""
    return _plain(str(error)[:LONGEST_LINE])


def error_line(error: BaseException) -> str:
    """The class of an error and its message."""
    return f"{type(error).__name__}: {error_text(error)}"


def traceback_text(error: BaseException) -> str:
    """The traceback of an error and of its causes; of a UtilityError the one that came with it from
    elsewhere.
    """
    known = error.traceback if isinstance(error, UtilityError) else ""
    return _plain((known or "".join(traceback.format_exception(error)))[-LONGEST_TRACEBACK:])


def _plain(text: str) -> str:
    """The text without surrogates, which names of files may hold and codecs refuse."""
    return text.encode(errors="backslashreplace").decode()
