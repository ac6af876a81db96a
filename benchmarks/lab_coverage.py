"""Does the verdict hold what it says? Whole experiments, from workload to interval, whose true difference is known.

    python benchmarks/lab_coverage.py [--experiments 60] [--replicates 20]

Steps of the oracle take 1 s in one arm and 1.1 s in the other, and all requests come at once and have room: the E2E
latency of a request is its number of tokens times the step time. So the true difference of the mean is 0.1 s times the
mean number of tokens, whose law is known. Few requests per replicate and a skewed law make it hard. Prints how often
the 95 % intervals held the truth.
"""

import argparse
from typing import Any

from enginecore_lab import compare, load_experiment
from enginecore_lab.comparison import MetricComparison

MEAN_TOKENS = 8.0
STEP_TIMES = 1.0, 1.1
LAWS: dict[str, dict[str, Any]] = {
    "uniform": {"kind": "uniform", "low": 2, "high": 14},
    "geometric": {"kind": "geometric", "mean": MEAN_TOKENS},
}


def run(law: dict[str, Any], seed: int, replicates: int) -> MetricComparison:
    """The primary metric of one experiment."""
    oracle = {"verify": False, "read_back": False, "vocab_size": 16}
    arms = [
        {"name": f"{time} s", "settings": {"executor": {"oracle": {**oracle, "step_time": time}}}}
        for time in STEP_TIMES
    ]
    outcome = compare(
        load_experiment(
            {
                "name": "coverage",
                "seed": seed,
                "replicates": replicates,
                "workload": {
                    "kind": "synthetic",
                    "num_requests": 16,
                    "prompt": {"kind": "constant", "tokens": 4},
                    "output": law,
                },
                "engine": {"executor": {"use": "oracle"}, "max_model_len": "auto", "num_kv_blocks": 1024},
                "arms": arms,
                "primary": {"metric": "e2e_mean", "margin_abs": 0.0},
                "secondary": {"metrics": []},
            }
        )
    )
    return outcome.comparison.comparisons[0].primary


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=60)
    parser.add_argument("--replicates", type=int, default=20)
    args = parser.parse_args()
    truth = (STEP_TIMES[1] - STEP_TIMES[0]) * MEAN_TOKENS
    for name, law in LAWS.items():
        found = [run(law, seed, args.replicates) for seed in range(args.experiments)]
        intervals = [each.interval for each in found if each.interval is not None]
        covered = sum(each.low <= truth <= each.high for each in intervals)
        width = sum(each.high - each.low for each in intervals) / len(intervals)
        print(
            f"{name:10} true difference {truth:.3f} s: inside {covered} of {len(intervals)} intervals of 95 % "
            f"({covered / len(intervals):.1%}), mean width {width:.3f} s; "
            f"{sum(each.verdict == 'worse' for each in found)} called worse",
            flush=True,
        )


if __name__ == "__main__":
    main()
