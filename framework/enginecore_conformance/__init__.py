"""Conformance kits: checks that show whether a component keeps its contract.

In a notebook or a script:

    from enginecore_conformance import check_component
    print(check_component("scheduler:fcfs"))

As the tests of a package that offers a component, with pytest:

    from enginecore_conformance import parametrize
    from my_scheduler import COMPONENT

    @parametrize(COMPONENT)
    def test_contract(check):
        check()

From the command line: `enginecore check scheduler:NAME`, or `pytest --pyargs enginecore_conformance
--component scheduler:NAME`.

Names are imported when first used: the entry point of the oracle and of the commands needs none of them.

- `front_doors`: those above; `kits`: which kinds there is a kit for.
- `schedulers`, `victims`, `kv_cache_managers`, `evictions`, `executors`, `transports`: the kits.
- `checks`: named checks, and what comes of them; what kits are made of.
- `trace`: what happens to a scheduler, as a few lines that can be pasted into a test.
- `oracle`: an executor whose tokens are right only if every block, slot and token was handled
right.
- `workloads`: requests made of a few block-sized bricks, so that full prefix hits happen.
- `harness`: drives a scheduler and an executor without an engine, one move at a time, and checks
after each.
- `invariants`: the checks themselves, through public members only.
- `transcript`: outputs that clients got, against the ground truth.
- `chaos`: a scheduling policy that decides everything at random.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from enginecore_conformance.front_doors import PreparedCheck, check_component, parametrize, prepare

__all__ = ["PreparedCheck", "check_component", "parametrize", "prepare"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("enginecore_conformance.front_doors"), name)
    raise AttributeError(f"module 'enginecore_conformance' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
