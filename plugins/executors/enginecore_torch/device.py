"""Where the model runs, in which dtype, and how much memory is free there."""

import resource
import sys
from pathlib import Path

import psutil
import torch

from enginecore.errors import ConfigurationError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
CPU_DTYPES = (torch.float32, torch.bfloat16)


def resolve_device(name: str) -> torch.device:
    """The device called "auto", "cpu", "cuda" or "cuda:N"; "auto" is CUDA where there is one.

    Raises:
        ConfigurationError: no such device here.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, index = name.partition(":")
    if kind == "cpu" and not index:
        return torch.device("cpu")
    if kind != "cuda" or (index and not index.isdigit()):
        raise ConfigurationError(f'device must be "auto", "cpu", "cuda" or "cuda:N", got {name!r}')
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(index or 0) >= count:
        raise ConfigurationError(
            f"device {name!r} is not present: torch {torch.__version__} sees {count} CUDA devices; "
            'use another index, or device = "cpu"'
        )
    return torch.device("cuda", int(index or 0))


def device_of_rank(name: str, rank: int, num_ranks: int) -> torch.device:
    """The device of one of several ranks: the CPU for all of them, or a CUDA device for each.

    Raises:
        ConfigurationError: there are too few, or one was named for all.
    """
    first = resolve_device(name)
    if first.type == "cpu" or num_ranks == 1:
        return first
    if ":" in name:
        raise ConfigurationError(
            f'device = "{name}" is one device, and each of {num_ranks} ranks needs its own: set device = "cuda", and '
            "choose devices by CUDA_VISIBLE_DEVICES"
        )
    if (count := torch.cuda.device_count()) < num_ranks:
        raise ConfigurationError(
            f"tensor_parallel_size x pipeline_parallel_size = {num_ranks} needs as many CUDA devices, and torch sees "
            f'{count}: lower one of them, or set device = "cpu"'
        )
    return torch.device("cuda", rank)


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """The dtype of this name.

    "auto" is bfloat16 where the hardware multiplies it natively, else float32.

    Raises:
        ConfigurationError: unknown, or not supported on this device.
    """
    if name == "auto":
        return torch.bfloat16 if _has_fast_bfloat16(device) else torch.float32
    if name not in DTYPES:
        raise ConfigurationError(f"dtype must be one of {', '.join(['auto', *DTYPES])}, got {name!r}")
    dtype = DTYPES[name]
    if device.type == "cpu" and dtype not in CPU_DTYPES:
        raise ConfigurationError(f'dtype {name!r} is not supported on the CPU; use "bfloat16" or "float32"')
    return dtype


def _has_fast_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    # private, and not on every platform
    probes = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(bool(probe()) for name in probes if (probe := getattr(torch.cpu, name, None)) is not None)


def free_memory(device: torch.device) -> int:
    """Bytes that can be allocated on the device; on the CPU within the process's control group."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return min([int(psutil.virtual_memory().available), *cgroup_headrooms(Path("/sys/fs/cgroup"))])


def memory_usage(device: torch.device) -> dict[str, int]:
    """Bytes of this process: resident, private, most ever resident, and held by torch on CUDA."""
    memory = psutil.Process().memory_full_info()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    held = torch.cuda.memory_reserved(device) if device.type == "cuda" else 0
    return {"resident": memory.rss, "private": memory.uss, "peak_resident": peak, "device": held}


def cgroup_headrooms(root: Path) -> list[int]:
    """Bytes that each control group of this process leaves; `root` is where they are mounted.

    Page cache that can be dropped counts as free.
    """
    headrooms = []
    for folder in _cgroup_folders(root):
        for limit, usage in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            try:
                total, used = (folder / limit).read_text().strip(), int((folder / usage).read_text())
            except (OSError, ValueError):
                continue
            if total != "max":
                headrooms.append(max(int(total) - used + _droppable(folder), 0))
    return headrooms


def _cgroup_folders(root: Path) -> list[Path]:
    """Folders of this process's memory control groups, outwards.

    The mount itself stands for a container's own group.
    """
    folders = [root, root / "memory"]
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return folders
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base = root / "memory" if controllers else root
        inner = Path(path.lstrip("/"))
        folders += [base / part for part in (inner, *inner.parents) if part != Path(".")]
    return folders


def _droppable(folder: Path) -> int:
    try:
        fields = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return 0
    return int(fields.get("inactive_file", 0))
