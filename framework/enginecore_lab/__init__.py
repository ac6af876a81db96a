"""The lab: experiments that compare configurations of the engine on one workload.

    from enginecore_lab import compare, load_experiment

Names are imported when first used: each part costs only those who use it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from enginecore_lab.capacity import find_capacity
    from enginecore_lab.comparing import compare
    from enginecore_lab.experiment_file import load_experiment
    from enginecore_lab.sweep import run_sweep

_HOMES = {
    "compare": "enginecore_lab.comparing",
    "find_capacity": "enginecore_lab.capacity",
    "load_experiment": "enginecore_lab.experiment_file",
    "run_sweep": "enginecore_lab.sweep",
}

__all__ = ["compare", "find_capacity", "load_experiment", "run_sweep"]


def __getattr__(name: str) -> Any:
    if home := _HOMES.get(name):
        return getattr(import_module(home), name)
    raise AttributeError(f"module 'enginecore_lab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
