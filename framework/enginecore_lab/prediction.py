"""Simulation against reality: the same requests to a real engine and to a simulated one, and how far they are apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from enginecore.messages import EngineInfo
from enginecore_lab.metrics import Window
from enginecore_lab.metrics.samples import TakeSamples, e2e, itl, ttft
from enginecore_lab.replay import replay
from enginecore_lab.run import RequestRun, Run
from enginecore_lab.workload import Workload
from enginecore_lab.workloads.transform import at_rate

BLOCKS = 15
RESAMPLES = 1000
LEVEL = 0.95
LATENCIES: Mapping[str, TakeSamples] = {"ttft": ttft, "itl": itl, "e2e": e2e}


@dataclass(frozen=True, slots=True)
class PredictionError:
    """One figure, as it was and as it was predicted.

    Attributes:
        metric: E.g. "ttft_mean".
        real: Value of the real run.
        low: Lower end of a 95 % interval of it.
        high: Upper end.
        simulated: Value of the simulated run.
    """

    metric: str
    real: float
    low: float
    high: float
    simulated: float

    @property
    def error(self) -> float:
        """Error as a share of the real figure; above 0: predicted too large."""
        return self.simulated / self.real - 1


def prediction_errors(
    real: Run, simulated: Run, *, window: Window | None = None, seed: int = 0
) -> list[PredictionError]:
    """Mean, P50 and P99 of TTFT, ITL and E2E latency, of the same requests in both runs.

    Intervals are of the real run alone: percentiles over resampled blocks of neighbouring requests, since neighbours
    share their fate. P99s of few requests are given, too: their intervals say what they are worth.

    Raises:
        TooFewRequests: the window leaves none.
    """
    chosen = window or Window()
    happened, predicted = chosen.of(real), chosen.of(simulated)
    errors = []
    for name, take in LATENCIES.items():
        values, other = _figures(take(happened, None)), _figures(take(predicted, None))
        lows, highs = _intervals(take, happened, np.random.default_rng(seed))
        errors += [
            PredictionError(f"{name}_{figure}", values[figure], lows[figure], highs[figure], other[figure])
            for figure in values
        ]
    return errors


def predict(workload: Workload, settings: Mapping[str, Any], costs: Path) -> tuple[Run, Run]:
    """Run the workload for real, then on a simulated executor of these costs.

    Args:
        workload: The workload of both engines.
        settings: Complete settings of the real engine.
        costs: As `enginecore calibrate` writes them.
    """
    real = replay(workload, settings, virtual=False)
    return real, replay(workload, simulated_settings(settings, real.info, costs), virtual=True)


def simulated_settings(settings: Mapping[str, Any], info: EngineInfo, costs: Path) -> dict[str, Any]:
    """The settings of a real engine with another executor, and with the very limits that were in force there.

    The shape and the card stand for any: what steps cost was measured, and how many blocks there are is given.
    """
    stages = _num_stages(settings, info)
    return {
        **settings,
        "num_kv_blocks": info.num_blocks,
        "max_model_len": info.max_model_len,
        "executor": {
            "use": "simulated",
            "simulated": {
                "costs": str(costs),
                "shape": "smollm2-135m",
                "max_position_embeddings": info.max_model_len,
                "hardware": "custom",
                "custom": {"flops": 1e12, "bandwidth": 1e12, "memory": 1 << 50},
                "overlap": stages == 1 and info.max_concurrent_batches > 1,
                "pipeline_parallel_size": stages,
            },
        },
    }


def _num_stages(settings: Mapping[str, Any], info: EngineInfo) -> int:
    """Pipeline stages, as the executor's own settings say; if they do not, two steps in flight are an overlap."""
    executor = settings.get("executor", {})
    own = executor.get(executor.get("use", ""), {})
    if "pipeline_parallel_size" in own:
        return int(own["pipeline_parallel_size"])
    return info.max_concurrent_batches if info.max_concurrent_batches > 2 else 1


def capacity(workload: Workload, settings: Mapping[str, Any]) -> float:
    """Requests per second that a simulated engine serves when all of these come at once."""
    at_once = [msgspec.structs.replace(each, arrival=0.0) for each in workload.requests]
    run = replay(msgspec.structs.replace(workload, requests=at_once), settings, virtual=True)
    return len(at_once) / run.makespan


def at_load(workload: Workload, load: float, most: float) -> Workload:
    """The same requests, arriving at this share of the rate `most`."""
    return at_rate(workload, load * most)


def _figures(samples: "np.ndarray[Any, np.dtype[np.float64]]") -> dict[str, float]:
    return {
        "mean": float(samples.mean()),
        "p50": float(np.quantile(samples, 0.5)),
        "p99": float(np.quantile(samples, 0.99)),
    }


def _intervals(
    take: TakeSamples, requests: Sequence[RequestRun], rng: np.random.Generator
) -> tuple[dict[str, float], dict[str, float]]:
    indices = np.array_split(np.arange(len(requests)), min(BLOCKS, len(requests)))
    blocks = [take([requests[index] for index in block], None) for block in indices]
    draws = [
        _figures(np.concatenate([blocks[choice] for choice in rng.integers(len(blocks), size=len(blocks))]))
        for _ in range(RESAMPLES)
    ]
    tail = (1 - LEVEL) / 2
    names = draws[0]
    lows, highs = (
        {name: float(np.quantile([draw[name] for draw in draws], share)) for name in names}
        for share in (tail, 1 - tail)
    )
    return lows, highs
