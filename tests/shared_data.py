"""Real traces and profiles, which lie beside the project where somebody has put them."""

import os
from pathlib import Path

import pytest

PLACE = Path(os.environ.get("SHARED_DATA") or Path(__file__).parents[2] / "shared")


def shared(path: str) -> Path:
    """A file there; the test is skipped, aloud, where it is not."""
    found = PLACE / path
    if not found.exists():
        pytest.skip(f"{found} is not there: real traces and profiles are not part of the project")
    return found
