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
- `transcript`: what clients were told, against the ground truth.
- `chaos`: a scheduling policy that decides everything at random.
"""

from enginecore_conformance.front_doors import PreparedCheck, check_component, parametrize, prepare

__all__ = ["PreparedCheck", "check_component", "parametrize", "prepare"]
