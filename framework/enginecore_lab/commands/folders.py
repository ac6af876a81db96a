"""Folders for results."""

import tempfile
from pathlib import Path

from enginecore.errors import ConfigurationError


def make_writable(folder: Path) -> None:
    """Make a folder unless it is there, and see that files can be written to it: before hours are spent on them.

    Raises:
        ConfigurationError: they cannot.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ConfigurationError(
            f"{folder} cannot hold results ({error}): name a folder that can be written to"
        ) from error
