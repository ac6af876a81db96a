"""Small workloads, and the oracle as the engine that runs them."""

from collections.abc import Iterable
from typing import Any

from enginecore.registry import Registry
from enginecore_lab.choices import all_metrics
from enginecore_lab.replay import replay
from enginecore_lab.run import Run
from enginecore_lab.workload import Workload, WorkloadRequest

METRICS = {metric.name: metric for metric in all_metrics(Registry.discover())}


def asked(request_id: str, at: float = 0.0, prompt: int = 8, output: int = 4, **fields: Any) -> WorkloadRequest:
    return WorkloadRequest(
        request_id=request_id, arrival=at, num_prompt_tokens=prompt, num_output_tokens=output, **fields
    )


def workload(requests: Iterable[WorkloadRequest], **fields: Any) -> Workload:
    return Workload(**{"name": "test", "requests": tuple(requests), **fields})


def on_oracle(step_time: float = 1.0, token_time: float = 0.0, **settings: Any) -> dict[str, Any]:
    """Settings of an engine whose steps take so long; more of them as in a configuration file."""
    oracle = {"step_time": step_time, "token_time": token_time, "verify": False, "read_back": False, "vocab_size": 16}
    return {
        "executor": {"use": "oracle", "oracle": {**oracle, **settings.pop("oracle", {})}},
        "max_model_len": "auto",
        "num_kv_blocks": 4096,
        **settings,
    }


def virtually(
    requests: Iterable[WorkloadRequest] | Workload, settings: dict[str, Any] | None = None, **options: Any
) -> Run:
    """A replay in virtual time, by default on an oracle whose steps take one second."""
    given = requests if isinstance(requests, Workload) else workload(requests)
    return replay(given, settings or on_oracle(), virtual=True, **options)
