"""Does the simulation order policies as the real engine does?

    python benchmarks/lab_reality.py [--seconds 60] [--requests 120] [--pairs 6]

Calibrates the executor `single` with SmolLM2 on this machine's CPU. Then, several times, the same Poisson requests, at
1.1 of what its four seats can serve, so that a queue grows, go to the real engine and to the simulated one under
`fcfs`, `sjf` and `prefill_first`, in an order drawn by lot. Prints mean E2E latency, mean TTFT and the longest gap
between tokens, the paired 95 % interval of each difference to `fcfs`, and whether the simulation has its sign where
that excludes zero.

How near single figures come, `enginecore calibrate costs.toml --predict 300` says. Keep the machine idle meanwhile.
"""

import argparse
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from enginecore.clock import RealClock
from enginecore.registry import Registry
from enginecore.settings import load_settings
from enginecore_lab.calibration import calibrate
from enginecore_lab.choices import find_metric
from enginecore_lab.metrics import RunView, Window
from enginecore_lab.prediction import at_load, capacity, simulated_settings
from enginecore_lab.replay import replay
from enginecore_lab.statistics import half_width
from enginecore_lab.workload import Workload
from enginecore_lab.workloads import read_workload
from enginecore_simulation.files import write_costs

POLICIES = ("fcfs", "sjf", "prefill_first")
FIGURES = ("e2e_mean", "ttft_mean", "itl_max")
LOAD = 1.1
ENGINE: dict[str, Any] = {
    "model": "smollm2-135m",
    "dtype": "float32",
    "max_model_len": 512,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 256,
    "executor": {"use": "single"},
}


def workload(count: int, replicate: int) -> Workload:
    """Short chats of very different lengths."""
    return read_workload(
        {
            "kind": "synthetic",
            "num_requests": count,
            "arrivals": {"kind": "poisson", "rate": 1.0},
            "prompt": {"kind": "uniform", "low": 8, "high": 192},
            "output": {"kind": "lognormal", "mean": 24, "sigma": 1.0, "maximum": 128},
        }
    ).make(7, replicate)


def under(policy: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The same engine with another policy."""
    return {**settings, "scheduler": {"use": policy}}


def measure(requests: Workload, settings: dict[str, Any], *, virtual: bool) -> dict[str, float]:
    """The figures of one run."""
    run = replay(requests, settings, virtual=virtual, reveal_lengths=True)
    view, registry = RunView(run, Window(skip_first=10, skip_last=10)), Registry.discover()
    return {name: find_metric(name, registry).compute(view) for name in FIGURES}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--pairs", type=int, default=6)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        costs = Path(folder) / "costs.toml"
        found = calibrate(load_settings(ENGINE, environ={}), RealClock(), seconds=args.seconds)
        write_costs(costs, found.fit, {})
        for regime, errors in found.fit.errors.items():
            print(f"calibrated {regime}: {errors.mape:.1%} off on steps held out, bias {errors.bias:+.1%}")
        simulated = simulated_settings(ENGINE, found.info, costs)
        most = capacity(workload(args.requests, 0), simulated)
        report(*compare(simulated, most, args.requests, args.pairs))


def compare(
    simulated: dict[str, Any], most: float, count: int, pairs: int
) -> tuple[dict[str, list[dict[str, float]]], dict[str, list[dict[str, float]]]]:
    """Figures by policy and pair: real ones and simulated ones."""
    random = Random(0)
    real: dict[str, list[dict[str, float]]] = {policy: [] for policy in POLICIES}
    predicted: dict[str, list[dict[str, float]]] = {policy: [] for policy in POLICIES}
    for replicate in range(pairs):
        requests = at_load(workload(count, replicate), LOAD, most)
        for policy in random.sample(POLICIES, len(POLICIES)):
            real[policy].append(measure(requests, under(policy, ENGINE), virtual=False))
            predicted[policy].append(measure(requests, under(policy, simulated), virtual=True))
    return real, predicted


def report(real: dict[str, list[dict[str, float]]], predicted: dict[str, list[dict[str, float]]]) -> None:
    """One line per figure and policy."""
    for figure in FIGURES:
        for policy in POLICIES:
            seen, foreseen = (np.array([run[figure] for run in runs[policy]]) for runs in (real, predicted))
            line = f"{figure:<10} {policy:<14} real {seen.mean():.3f} s, simulated {foreseen.mean():.3f} s"
            if policy != "fcfs":
                base, guess = (np.array([run[figure] for run in runs["fcfs"]]) for runs in (real, predicted))
                mean, half = float((seen - base).mean()), half_width(seen - base)
                alike = np.sign(mean) == np.sign((foreseen - guess).mean())
                line += f"; real - fcfs {mean - half:+.3f} to {mean + half:+.3f} s, simulated "
                line += f"{(foreseen - guess).mean():+.3f} s: "
                line += ("ordered alike" if alike else "NOT ordered alike") if abs(mean) > half else "too near to tell"
            print(line)


if __name__ == "__main__":
    main()
