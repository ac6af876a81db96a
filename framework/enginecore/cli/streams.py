"""Standard input and output of commands, also where they are closed or broken."""

import io
import os
import sys
from contextlib import suppress
from typing import TextIO

from enginecore.errors import EngineCoreError


def standard_input() -> TextIO:
    """Standard input. A byte that cannot be decoded stays as half a surrogate pair, so that only
    its line is refused.

    Raises:
        EngineCoreError: it is closed.
    """
    # typed as never None, which it is when a parent has closed it
    stream: TextIO | None = sys.stdin
    if stream is None:
        raise EngineCoreError("standard input is closed: open a terminal, a pipe or a file as standard input")
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="surrogateescape")
    return stream


def drop_unwritable_output() -> None:
    """Give up what standard output cannot take: Python tries once more at exit, and says in its own
    way that it fails.

    As "Note on SIGPIPE" in Python's documentation of `signal` does.
    """
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):  # it may be no file at all
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
