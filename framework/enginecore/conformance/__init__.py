"""The kit for plugin authors: what shows that a component keeps its contract.

- `oracle`: an executor whose tokens are right only if every block, slot and token was handled right.
- `workloads`: requests made of a few block-sized bricks, so that full prefix hits happen.
- `harness`: drives a scheduler and an executor without an engine, one move at a time, and checks after each.
- `invariants`: the checks themselves, through public members only.
- `transcript`: what clients were told, against the ground truth.
- `chaos`: a scheduling policy that decides everything at random.
- `checks`: named checks, and what comes of them; what kits are made of.
- `transports`: the kit for transports.
"""
