"""The worker process of `multiproc`: one rank. Imports torch only when it loads a model."""

import faulthandler
import logging
import os
import select
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from enginecore.messages import ModelRunnerOutput
from enginecore.processes import Parent
from enginecore_torch.multiproc.control import (
    CallDone,
    CallMethod,
    InitializeKVCache,
    MeasureMemory,
    RankReady,
    RunStep,
    SampleStep,
    StepDone,
    WorkerEnd,
    call_failed,
    rank_failed,
)
from enginecore_torch.rank import Rank


def main(payload: Mapping[str, Any], parent: Parent) -> int:
    """Load this rank's share of the model and serve until the executor hangs up; the exit code."""

    def load() -> Rank:
        from enginecore_torch.multiproc.loading import load_rank

        return load_rank(payload)

    return run(payload, parent, load)


def run(payload: Mapping[str, Any], parent: Parent, load: Callable[[], Rank]) -> int:
    """The life of a worker whose rank is made by `load()`."""
    end = WorkerEnd(payload["fd"])

    def leave() -> None:
        """The executor has gone, and may not have lived to remove its files."""
        shutil.rmtree(payload["directory"], ignore_errors=True)
        os._exit(0)

    _watch(end, parent, leave)
    faulthandler.register(signal.SIGUSR1)  # the executor asks where a rank hangs
    if payload["rank"]:
        logging.disable(logging.WARNING)  # the first rank warns for all
    try:
        rank = load()
        end.send(RankReady(rank.info))
        serve(end, rank)
    except (BrokenPipeError, ConnectionResetError):
        leave()
    except BaseException as error:
        with suppress(OSError):
            end.send(rank_failed(error))
        sys.stderr.flush()
        os._exit(1)  # what the process group's threads still wait for will not come
    leave()
    return 0


def serve(end: WorkerEnd, rank: Rank) -> None:
    """Follow orders, one after another, until the executor hangs up."""
    while (order := end.receive()) is not None:
        match order:
            case RunStep(number, plan, sampled):
                for step, token_ids in sampled:
                    rank.fill_tokens(step, token_ids)
                _answer_step(end, number, rank.execute_model(plan))
            case SampleStep(number, step):
                _answer_step(end, number, rank.sample_tokens(step))
            case CallMethod(number, method, args):
                _answer_call(end, rank, number, method, args)
            case MeasureMemory(number):
                end.send(CallDone(number, rank.measure_free_memory()))
            case InitializeKVCache(number, num_blocks):
                rank.initialize_kv_cache(num_blocks)
                end.send(CallDone(number))


def _answer_step(end: WorkerEnd, number: int, output: ModelRunnerOutput | None) -> None:
    if output is not None:
        end.send(StepDone(number, output))


def _answer_call(end: WorkerEnd, rank: Rank, number: int, method: str, args: Sequence[Any]) -> None:
    try:
        end.send(CallDone(number, rank.call(method, args)))
    except OSError:
        raise
    except Exception as error:  # the method's, or of a result that cannot be sent: the caller's
        end.send(call_failed(number, error))


def _watch(end: WorkerEnd, parent: Parent, leave: Callable[[], None]) -> None:
    """Leave at once when the executor hangs up or its process ends, whatever this one is doing."""

    def wait() -> None:
        poll = select.poll()
        poll.register(end.fileno(), 0)  # nothing but its hang-up
        poll.poll()
        leave()

    threading.Thread(target=wait, name="watch-executor", daemon=True).start()
    parent.watch(leave)  # a process forked from the executor's may hold the socket open
