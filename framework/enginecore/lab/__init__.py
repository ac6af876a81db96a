"""The lab: one workload, several configurations, and a verdict on which is better.

    from enginecore.lab import compare, load_experiment

Names are imported when first used, so that whoever needs one part does not pay for all.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from enginecore.lab.capacity import find_capacity
    from enginecore.lab.comparing import compare
    from enginecore.lab.reading import load_experiment
    from enginecore.lab.sweep import run_sweep

_HOMES = {
    "compare": "enginecore.lab.comparing",
    "find_capacity": "enginecore.lab.capacity",
    "load_experiment": "enginecore.lab.reading",
    "run_sweep": "enginecore.lab.sweep",
}

__all__ = ["compare", "find_capacity", "load_experiment", "run_sweep"]


def __getattr__(name: str) -> Any:
    if home := _HOMES.get(name):
        return getattr(import_module(home), name)
    raise AttributeError(f"module 'enginecore.lab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
