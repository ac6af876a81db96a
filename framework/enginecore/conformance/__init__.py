"""The kit for plugin authors: what shows that a scheduler, KV cache manager or executor keeps its contract.

- `oracle`: an executor whose tokens are right only if every block, slot and token was handled right.
- `workloads`: requests made of a few block-sized bricks, so that full prefix hits happen.
- `harness`: drives a scheduler and an executor without an engine, one move at a time, and checks after each.
- `invariants`: the checks themselves, through public members only.
- `transcript`: what clients were told, against the ground truth.
- `chaos`: a scheduling policy that decides everything at random.
"""
