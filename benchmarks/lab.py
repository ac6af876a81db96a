"""How fast the lab simulates, and which configuration has most capacity under which SLO: `python benchmarks/lab.py`.

First a whole trace of Mooncake, an hour of conversations, on one simulated H100 with Llama 3.1 8B, `fcfs` and prefix
caching: seconds on one core, and peak memory. Then how many requests per second of Azure's conversations an A100
serves with 90 % of them in time, by configuration and SLO (DistServe, OSDI 2024; Sarathi-Serve, OSDI 2024): which one
is best depends on what is asked.

Traces are those of ../shared/traces, or of --traces; what is not there is left out.
"""

import argparse
import os
import resource
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from enginecore_lab.replay import replay
from enginecore_lab.run import RequestRun, Run
from enginecore_lab.workload import Workload
from enginecore_lab.workloads import read_workload
from enginecore_lab.workloads.transform import at_rate

TRACES = Path(os.environ.get("SHARED_DATA") or Path(__file__).parents[2] / "shared") / "traces"

H100 = {"model": "llama-3.1-8b", "executor": {"use": "simulated"}, "kv_cache_memory": 1.0}

A100 = {
    "model": "llama-3.1-8b",
    "max_model_len": 8192,
    "kv_cache_memory": 1.0,
    "executor": {"use": "simulated", "simulated": {"hardware": "A100-SXM-80"}},
}

ARMS: dict[str, dict[str, Any]] = {
    "whole prompts first": {"scheduler": {"use": "prefill_first"}, "max_num_batched_tokens": 8192},
    "pieces, 2048 tokens": {"max_num_batched_tokens": 2048},
    "pieces, 512 tokens": {"max_num_batched_tokens": 512},
}

RATES = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)

IsGood = Callable[[RequestRun], bool]


def longest_gap(of: RequestRun) -> float:
    """Between two of its tokens."""
    return max((b - a for a, b in pairwise(of.token_times)), default=0.0)


def ttft(of: RequestRun) -> float:
    """To its first token."""
    return of.token_times[0] - of.arrival


def tpot(of: RequestRun) -> float:
    """Per token after the first."""
    return (of.token_times[-1] - of.token_times[0]) / max(len(of.token_times) - 1, 1)


SLOS: dict[str, IsGood] = {
    "TTFT 1 s, no gap above 0.1 s": lambda of: ttft(of) <= 1 and longest_gap(of) <= 0.1,
    "TTFT 1 s, no gap above 0.5 s": lambda of: ttft(of) <= 1 and longest_gap(of) <= 0.5,
    "TTFT 0.3 s, TPOT 0.05 s": lambda of: ttft(of) <= 0.3 and tpot(of) <= 0.05,
}


def load(kind: str, path: Path, **settings: Any) -> Workload | None:
    """A trace, if it is there."""
    if not path.exists():
        print(f"{path} is not there: skipped")
        return None
    return read_workload({"kind": kind, "path": str(path), **settings}).make(0, 0)


def measure_speed(traces: Path) -> None:
    """A whole trace on one core."""
    workload = load("mooncake", traces / "mooncake_conversation.jsonl")
    if workload is None:
        return
    cpu = os.times()
    run = replay(workload, H100, virtual=True)
    now = os.times()
    seconds = now.user + now.system - cpu.user - cpu.system
    tokens = sum(len(each.token_times) for each in run.requests)
    prompts = sum(each.request.num_prompt_tokens for each in run.requests)
    print(
        f"{workload.name}: {len(run.requests)} requests, {prompts / 1e6:.1f} M prompt and {tokens / 1e6:.2f} M output"
    )
    print(
        f"{run.makespan:.0f} s of virtual time in {seconds:.1f} s of one core ({run.wall_seconds:.1f} s by the clock)"
    )
    print(f"{len(run.steps.step) / seconds:.0f} steps/s, {len(run.requests) / seconds:.0f} requests/s, ", end="")
    print(f"{tokens / seconds / 1000:.0f} k output tokens/s")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


def capacity(shares: list[float]) -> float:
    """The highest rate with 90 % in time, between two rates tried by proportion."""
    most = 0.0
    for (rate, share), (faster, less) in pairwise(zip((0.0, *RATES), (1.0, *shares), strict=True)):
        if share < 0.9:
            break
        most = faster if less >= 0.9 else rate + (faster - rate) * (share - 0.9) / (share - less)
    return most


def measure_capacities(traces: Path) -> None:
    """Each configuration at each rate; the same requests everywhere."""
    workload = load("azure", traces / "azure_2023_conv.csv", requests_per_replicate=600)
    if workload is None:
        return
    print(f"\nrequests/s with 90 % in time{'':12s}" + "".join(f"{name:>30s}" for name in SLOS))
    for name, settings in ARMS.items():
        runs = [replay(at_rate(workload, rate), {**A100, **settings}, virtual=True) for rate in RATES]
        found = [capacity([share_good(run, is_good) for run in runs]) for is_good in SLOS.values()]
        print(f"{name:39s}" + "".join(f"{rate:30.2f}" for rate in found))


def share_good(run: Run, is_good: IsGood) -> float:
    """Of all offered requests."""
    return float(np.mean([each.is_complete and is_good(each) for each in run.requests]))


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, default=TRACES)
    arguments = parser.parse_args()
    measure_speed(arguments.traces)
    measure_capacities(arguments.traces)


if __name__ == "__main__":
    main()
