"""Runs made by hand: nothing was measured, so every figure is known."""

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from enginecore.messages import EngineInfo, FinishReason
from enginecore_lab.metrics import Alone, RunView, Slo, Window
from enginecore_lab.run import RequestRun, Run, StepSeries
from tests.lab.making import METRICS, asked, workload

INFO = EngineInfo(
    model="none", max_model_len=1000, vocab_size=16, eos_token_ids=[], num_blocks=10, block_size=16, max_num_seqs=4,
    max_num_batched_tokens=64, enable_prefix_caching=True, enable_chunked_prefill=True, max_concurrent_batches=1,
    components={}, seed=0,
)  # fmt: skip


def served(
    at: float = 0.0,
    times: Iterable[float] = (1.0, 2.0),
    *,
    scheduled: float | None = None,
    asked_for: int | None = None,
    prompt: int = 8,
    cached: int = 0,
    preempted: Sequence[float] = (),
    pieces: Sequence[tuple[int, int]] | None = None,
    **fields: Any,
) -> RequestRun:
    """A request that was served: its tokens came at these times, and it is scheduled when it comes."""
    tokens = list(times)
    output = len(tokens) if asked_for is None else asked_for
    return RequestRun(
        asked("", at, prompt=prompt, output=output, **fields),
        at,
        first_scheduled=at if scheduled is None else scheduled,
        token_times=array("d", tokens),
        ended=tokens[-1],
        finish_reason=FinishReason.LENGTH,
        num_cached_tokens=cached,
        num_preemptions=len(preempted),
        pieces=[(1, prompt - cached)] if pieces is None else list(pieces),
        preempted_at=list(preempted),
    )


def failed(at: float = 0.0, times: Iterable[float] = (), ended: float = 1.0, output: int = 4) -> RequestRun:
    """One that failed after some tokens."""
    return RequestRun(
        asked("", at, output=output), at, token_times=array("d", times), ended=ended,
        finish_reason=FinishReason.ERROR, error="it did",
    )  # fmt: skip


def unfinished(at: float = 0.0, times: Iterable[float] = (), output: int = 4) -> RequestRun:
    """One that had not ended when the replay was cut short."""
    return RequestRun(asked("", at, output=output), at, token_times=array("d", times))


def run_of(*requests: RequestRun, settled: Sequence[float] = (), waiting: Sequence[int] = (), **fields: Any) -> Run:
    """A run of these. Steps are given by when they were settled and how many waited then."""
    steps = StepSeries(settled=array("d", settled), num_waiting=array("q", waiting))
    asked_for = workload([each.request for each in requests], **fields)
    return Run(asked_for, INFO, {}, requests, steps, virtual=True, wall_seconds=1.0)


def value(
    name: str,
    *requests: RequestRun,
    slo: Slo | None = None,
    window: Window | None = None,
    alone: Alone | None = None,
    **fields: Any,
) -> float:
    """A metric of a run of these requests."""
    return METRICS[name].compute(RunView(run_of(*requests, **fields), window or Window(), slo or Slo(), alone))
