"""Workloads for the tests of the lab, from few words."""

from typing import Any

from enginecore_lab.workload import Workload, WorkloadRequest
from enginecore_lab.workloads import read_workload

POISSON = {"kind": "poisson", "rate": 2.0}


def asked(request_id: str, arrival: float = 0.0, prompt: int = 8, output: int = 4, **fields: Any) -> WorkloadRequest:
    return WorkloadRequest(
        request_id=request_id, arrival=arrival, num_prompt_tokens=prompt, num_output_tokens=output, **fields
    )


def workload(*requests: WorkloadRequest, **fields: Any) -> Workload:
    return Workload(**{"name": "test", "requests": list(requests), **fields})


def synthetic(seed: int = 0, replicate: int = 0, **table: Any) -> Workload:
    return read_workload({"kind": "synthetic", "num_requests": 100, **table}).make(seed, replicate)


def ids(made: Workload) -> list[str]:
    return [each.request_id for each in made.requests]
