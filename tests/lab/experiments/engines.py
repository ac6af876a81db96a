"""Simulated engines for experiments whose outcome is known."""

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

import msgspec

from enginecore.plugin import Component
from enginecore.settings import load_settings
from enginecore_lab.metrics import RunView
from enginecore_lab.replay import replay
from enginecore_lab.run import Run
from enginecore_lab.workload import Workload
from enginecore_lab.workloads import read_workload
from tests.lab.making import METRICS
from tests.shared_data import shared

A100 = {"hardware": "A100-SXM-80"}

_ROOMY = {"flops": 1e15, "bandwidth": 1e12, "memory": 1 << 50}

_FREE = dict.fromkeys(
    ("per_request", "weights", "per_token", "per_kv_token", "per_attention_pair", "comm_per_step", "comm_per_token"),
    0.0,
)
"""Nothing but the step itself takes time."""


def constant_steps(seats: int, step: float = 1.0, **settings: Any) -> dict[str, Any]:
    """An engine with so many seats and enough of everything else, whose steps take so long whatever they hold.

    A request of n output tokens holds a seat for exactly n steps, and being displaced costs none: what is known of it
    is computed again within the step that gives its next token.
    """
    card = {"hardware": "custom", "custom": _ROOMY, "parameters": {"per_step": step, **_FREE}}
    limits = {"num_kv_blocks": 100_000, "max_num_batched_tokens": 1_000_000, "max_model_len": "auto"}
    return simulated(card=card, max_num_seqs=seats, **{**limits, **settings})


def simulated(*, card: Mapping[str, Any] = A100, **settings: Any) -> dict[str, Any]:
    """Llama 3.1 8B, by default on an A100."""
    return {"model": "llama-3.1-8b", "executor": {"use": "simulated", "simulated": card}, **settings}


def run(
    workload: Workload,
    settings: Mapping[str, Any],
    policy: str = "fcfs",
    *,
    components: Iterable[Component] = (),
    reveal_lengths: bool = True,
    **policy_settings: Any,
) -> Run:
    """A replay in virtual time under this policy."""
    chosen = {**settings, "scheduler": {"use": policy, policy: policy_settings}}
    loaded = load_settings(chosen, components=components, environ={})
    return replay(workload, loaded, virtual=True, reveal_lengths=reveal_lengths)


def drawn(num_requests: int, *, seed: int = 0, **tables: Any) -> Workload:
    """A synthetic workload; prompts of one token."""
    table = {"kind": "synthetic", "num_requests": num_requests, "prompt": {"kind": "constant", "tokens": 1}, **tables}
    return read_workload(table).make(seed, 0)


def azure(num_requests: int, rate_scale: float = 1.0) -> Workload:
    """The first requests of Azure's conversation trace of 2023."""
    table = {"kind": "azure", "path": str(shared("traces/azure_2023_conv.csv")), "rate_scale": rate_scale}
    return read_workload({**table, "requests_per_replicate": num_requests}).make(0, 0)


def at_once(workload: Workload) -> Workload:
    """The same requests, all there from the start."""
    return msgspec.structs.replace(
        workload, requests=[msgspec.structs.replace(each, arrival=0.0) for each in workload.requests]
    )


def arrivals(workload: Workload) -> list[float]:
    return [each.arrival for each in workload.requests]


def outputs(workload: Workload) -> list[int]:
    return [each.num_output_tokens for each in workload.requests]


def latencies(of: Run) -> list[float]:
    return [each.token_times[-1] - each.arrival for each in of.requests]


def queue_delays(of: Run) -> list[float]:
    return [inf if each.first_scheduled is None else each.first_scheduled - each.arrival for each in of.requests]


def ttfts(of: Run) -> list[float]:
    return [each.token_times[0] - each.arrival for each in of.requests]


def metric(name: str, of: Run) -> float:
    return METRICS[name].compute(RunView(of))
