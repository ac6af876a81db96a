"""Small experiments on the oracle, whose steps take a second."""

from copy import deepcopy
from typing import Any

from enginecore.settings.sources import nested, overlay
from enginecore_lab.experiment import Experiment
from enginecore_lab.experiment_file import load_experiment
from tests.lab.making import on_oracle

ORACLE = on_oracle(step_time=1.0)

VALUES: dict[str, Any] = {
    "name": "small",
    "replicates": 8,
    "workload": {
        "kind": "synthetic",
        "num_requests": 12,
        "prompt": {"kind": "constant", "tokens": 4},
        "output": {"kind": "uniform", "low": 2, "high": 6},
    },
    "engine": ORACLE,
    "arms": [{"name": "slow"}, {"name": "fast", "settings": {"executor": {"oracle": {"step_time": 0.5}}}}],
    "primary": {"metric": "e2e_mean"},
}


def values(**changes: Any) -> dict[str, Any]:
    """As a file would hold it; changes by key, `__` for a dot."""
    made = deepcopy(VALUES)
    for key, value in changes.items():
        made = overlay(made, nested(key.split("__"), value))
    return made


def experiment(**changes: Any) -> Experiment:
    return load_experiment(values(**changes))
