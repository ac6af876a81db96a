"""Where the frozen packages are, and what their files were when they were frozen."""

from hashlib import sha256
from pathlib import Path

V1 = Path(__file__).parent / "v1"
CHECKSUMS = V1.with_suffix(".sha256")
"""As of `sha256sum`: one line per file, its path from `V1` on."""


def checksums(folder: Path) -> dict[str, str]:
    """SHA-256 of every file in a folder by path, in order of paths."""
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def recorded_checksums() -> dict[str, str]:
    """Those of the file `CHECKSUMS`."""
    lines = (line.split() for line in CHECKSUMS.read_text().splitlines())
    return {path: digest for digest, path in lines}
