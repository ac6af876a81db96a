"""The build of the C kernels: once per machine, compiler and source, then from the cache."""

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch

from enginecore.errors import ConfigurationError
from enginecore_models.cache import cached_or_temporary_folder, discard_folder

logger = logging.getLogger(__name__)

COMPILERS = ("cc", "gcc", "clang")
SOURCE = Path(__file__).with_name("kernels.c")
LIBRARY = "kernels.so"
# no -ffast-math: the kernels tell a NaN from a number. Cells are read as what they hold, hence the
# aliasing flag.
FLAGS = (
    "-std=gnu11", "-O3", "-march=native", "-fopenmp", "-fPIC", "-shared", "-fno-strict-aliasing", "-fno-math-errno",
    "-fno-trapping-math",
)  # fmt: skip
TIMEOUT = 120.0  # seconds; compiling takes one
STORAGE_FLAGS = {torch.float32: (), torch.bfloat16: ("-DBFLOAT16",)}


def load_kernels(dtype: torch.dtype, device: torch.device) -> ctypes.CDLL:
    """The kernels for this storage type, from the user's cache or freshly compiled.

    torch is loaded by now: the library's OpenMP is torch's own, so both share one pool of threads.

    Raises:
        ConfigurationError: they are not for this device or type, there is no compiler, or it
            failed; says what it said.
    """
    if device.type != "cpu" or dtype not in STORAGE_FLAGS:
        raise ConfigurationError(
            f'the native kernels run on the CPU with float32 or bfloat16, not on {device} with {dtype}; choose "torch"'
        )
    command = [_find_compiler(), *FLAGS, *STORAGE_FLAGS[dtype]]
    key = _fingerprint(command)
    try:
        return _load(command, key)
    except OSError as error:
        logger.warning("the compiled native kernels cannot be loaded (%s) and are compiled again", error)
        return _compile_again(command, key)


def _load(command: list[str], key: str) -> ctypes.CDLL:
    """Load the library from a checked folder: a truncated one would end the process by SIGBUS."""
    with cached_or_temporary_folder("kernels", key, lambda folder: _compile(command, folder / LIBRARY)) as folder:
        return ctypes.CDLL(str(folder / LIBRARY))


def _compile_again(command: list[str], key: str) -> ctypes.CDLL:
    try:
        discard_folder("kernels", key)
        return _load(command, key)
    except OSError as error:
        raise ConfigurationError(f"the native kernels cannot be kept or loaded: {error}") from error


def declare(kernels: ctypes.CDLL, name: str, *arguments: Any, result: Any = None) -> Callable[..., Any]:
    """A function of the library with the types of its arguments and its result."""
    function = getattr(kernels, name)
    function.argtypes, function.restype = arguments, result
    return cast(Callable[..., Any], function)


def _find_compiler() -> str:
    for name in (os.environ["CC"],) if os.environ.get("CC") else COMPILERS:
        if found := shutil.which(name):
            return found
    raise ConfigurationError(
        f'no C compiler was found ({os.environ.get("CC") or ", ".join(COMPILERS)}); install one, or choose "torch"'
    )


def _fingerprint(command: list[str]) -> str:
    """Of all that the result depends on: source, flags, compiler and processor."""
    version = _run([command[0], "--version"])
    parts = (SOURCE.read_text(), " ".join(command), version.stdout, _processor())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _processor() -> str:
    """What -march=native stands for: a home folder may be shared by different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def _compile(command: list[str], library: Path) -> None:
    done = _run([*command, str(SOURCE), "-o", str(library), "-lm"])
    if done.returncode:
        raise ConfigurationError(f"{command[0]} could not compile the native kernels: {done.stderr[-2000:]}")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired as error:
        raise ConfigurationError(f"the compiler took more than {TIMEOUT:.0f} s: {' '.join(command)}") from error
    except OSError as error:
        raise ConfigurationError(f"the compiler {command[0]} cannot be run: {error}") from error
