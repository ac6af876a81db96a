"""The oracle executor: a model of a few lines that runs through real block tables and slots.

Its next token is a pure function of all tokens before it *as read back through the block table from
the slots that were written*. Each slot holds a digest of its whole prefix, salt and adapter. So a
wrong prefix hit, a block given away too early, a stale slot or a lost token shows up as a wrong
token, in microseconds and without weights.

- `settings`: what can be set.
- `model`: the function, and the ground truth that needs no blocks.
- `memory`: slots.
- `worker`: rows, and what one step does to them.
- `trusting`: a worker that reads nothing back, for measuring what everything else costs.
- `verifier`: each plan against the contract of `SchedulerOutput`.
- `faults`: what can be made to go wrong.
- `executor`: futures, time and life cycle.
"""
