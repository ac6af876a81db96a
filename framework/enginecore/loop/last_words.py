"""What is said of a failure: whatever an error says of itself, as text that reaches whoever waits."""

import traceback

from enginecore.errors import EngineDeadError, UtilityError
from enginecore.wire import Dead

LONGEST_LINE = 2000
LONGEST_TRACEBACK = 20_000
"""Characters that travel; of a traceback the last ones, where the fault is."""


def last_word(error: BaseException) -> Dead:
    """What is said when the engine core ends by an error."""
    reason = said_by(error) if isinstance(error, EngineDeadError) else f"the engine core has failed: {named(error)}"
    return Dead(reason, traceback_of(error))


def said_by(error: BaseException) -> str:
    """What an error says."""
    return _plain(str(error)[:LONGEST_LINE])


def named(error: BaseException) -> str:
    """The same, with what kind of error it is."""
    return f"{type(error).__name__}: {said_by(error)}"


def traceback_of(error: BaseException) -> str:
    """Its traceback and those of its causes, or what it carries of them from elsewhere."""
    known = error.traceback if isinstance(error, UtilityError) else ""
    return _plain((known or "".join(traceback.format_exception(error)))[-LONGEST_TRACEBACK:])


def _plain(text: str) -> str:
    """As any codec carries it: names of files may hold what is no character."""
    return text.encode(errors="backslashreplace").decode()
