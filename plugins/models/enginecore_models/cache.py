"""Folders in the user's cache, made whole or not at all, and checked before they are used.

Where: $ENGINECORE_CACHE, else $XDG_CACHE_HOME/enginecore, else ~/.cache/enginecore. It may be
deleted at any time.
"""

import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

logger = logging.getLogger(__name__)

Kind = Literal["converted", "kernels"]
"""What is kept: converted models, and compiled kernels. Each has a folder of its own."""

MANIFEST = "manifest.json"
_PARTIAL = ".partial-"
_ABANDONED_AFTER = 86400.0  # seconds; no conversion takes that long
_CHUNK = 1 << 22


def cache_root() -> Path:
    """The user's cache of enginecore. It may not exist yet."""
    if root := os.environ.get("ENGINECORE_CACHE"):
        return Path(root).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "enginecore"


def content_hash(file: Path) -> str:
    """SHA-256 of a file's content, the first 32 hexadecimal digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:32]


def cached_folder(kind: Kind, key: str, build: Callable[[Path], None]) -> Path | None:
    """The folder that `build` fills, from the cache if intact; None: the cache cannot be written.

    Processes may race: each builds in a folder of its own, the first to finish gives it its name. A
    folder in which something is missing, cut off or altered is built again.

    Args:
        kind: What the folder holds.
        key: Names all that the content depends on.
        build: Fills an empty folder, flat, with at least one file. What it raises reaches the
            caller, except OSError.
    """
    root = cache_root() / kind
    folder = root / key
    if _is_intact(folder):
        return folder
    try:
        _create(folder, build)
    except OSError as error:
        logger.warning("cannot keep %s in %s (%s); going on without, the next start is as slow", key, root, error)
        return None
    return folder


@contextmanager
def cached_or_temporary_folder(kind: Kind, key: str, build: Callable[[Path], None]) -> Iterator[Path]:
    """As `cached_folder`; where the cache cannot be written, a folder that is gone afterwards.

    Raises:
        OSError: neither can be written.
    """
    folder = cached_folder(kind, key, build)
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="enginecore-") as temporary:
        build(Path(temporary))
        yield Path(temporary)


def discard_folder(kind: Kind, key: str) -> None:
    """Take a folder out of the cache that is intact and of no use all the same.

    Raises:
        OSError: the cache cannot be written.
    """
    folder = cache_root() / kind / key
    if folder.exists():
        with _lock(folder.parent):
            _move_away(folder)


def _create(folder: Path, build: Callable[[Path], None]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(folder.parent)
    partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=_PARTIAL))
    try:
        build(partial)
        _seal(partial)
        with _lock(folder.parent):
            if not _is_intact(folder):  # else another process was quicker
                _move_away(folder)
                partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _lock(root: Path) -> Iterator[None]:
    """One process at a time names folders, so that none discards a folder just mended."""
    with (root / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # ends with the file, also if the process is killed
        yield


def _seal(folder: Path) -> None:
    """Write the manifest: size and checksum of each file.

    It finds what a power cut took, so nothing is synced.
    """
    manifest = {file.name: _fingerprint(file) for file in folder.iterdir()}
    (folder / MANIFEST).write_bytes(msgspec.json.encode(manifest))


def _is_intact(folder: Path) -> bool:
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=dict[str, tuple[int, int]])
        # no build fills a folder with nothing, so a manifest that names nothing is not one that was
        # written here
        return bool(manifest) and all(_fingerprint(folder / name) == known for name, known in manifest.items())
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        logger.warning("the cached folder %s is damaged (%s) and is built again", folder, error)
        return False


def _fingerprint(file: Path) -> tuple[int, int]:
    """Size and CRC-32, against accidents: an attacker who can write the cache owns the account."""
    checksum = 0
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
        return stream.tell(), checksum


def _move_away(damaged: Path) -> None:
    """Take a damaged folder's name from it. Processes that have its files mapped keep them."""
    doomed = Path(tempfile.mkdtemp(dir=damaged.parent, prefix=_PARTIAL))
    try:
        damaged.rename(doomed / damaged.name)
    except FileNotFoundError:
        pass  # there was none
    finally:
        shutil.rmtree(doomed, ignore_errors=True)


def _remove_abandoned(root: Path) -> None:
    """Remove what killed processes left half-made."""
    for partial in root.glob(f"{_PARTIAL}*"):
        try:
            abandoned = time.time() - partial.stat().st_mtime > _ABANDONED_AFTER
        except FileNotFoundError:
            continue
        if abandoned:
            shutil.rmtree(partial, ignore_errors=True)
