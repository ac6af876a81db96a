"""A worker of the executor `multiproc`: one rank in a process of its own. Imports torch only once it loads a model."""

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
from typing import Any, Protocol

from enginecore.messages import ModelRunnerOutput, SchedulerOutput
from enginecore.processes import Parent
from enginecore_torch.multiproc.control import (
    Call,
    Initialize,
    Measure,
    Ready,
    Result,
    Step,
    StepDone,
    WorkerEnd,
    call_failed,
    failed,
)


class Rank(Protocol):
    """What a worker serves. An exception of any of these but `call` ends it."""

    def ready(self) -> Ready:
        """What it has to say once it is loaded."""
        ...

    def measure(self) -> int:
        """Bytes that are free for the KV cache."""
        ...

    def initialize(self, num_blocks: int) -> None:
        """Allocate the KV cache and warm up."""
        ...

    def learn(self, step: int, token_ids: list[int]) -> None:
        """What the last stage sampled in an earlier step."""
        ...

    def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput | None:
        """Run a step; None: another rank answers."""
        ...

    def call(self, method: str, args: Sequence[Any]) -> Any:
        """A method by name. An exception fails the call only."""
        ...


def main(payload: Mapping[str, Any], parent: Parent) -> int:
    """Load this rank's share of the model and serve until the executor hangs up. Returns the exit code."""

    def load() -> Rank:
        from enginecore_torch.rank import load_rank

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
        end.send(rank.ready())
        serve(end, rank)
    except (BrokenPipeError, ConnectionResetError):
        leave()
    except BaseException as error:
        with suppress(OSError):
            end.send(failed(error))
        sys.stderr.flush()
        os._exit(1)  # what the process group's threads still wait for will not come
    leave()
    return 0


def serve(end: WorkerEnd, rank: Rank) -> None:
    """Follow orders, one after another, until the executor hangs up."""
    while (order := end.receive()) is not None:
        match order:
            case Step(number, plan, told):
                for step, token_ids in told:
                    rank.learn(step, token_ids)
                if (output := rank.execute(plan)) is not None:
                    end.send(StepDone(number, output))
            case Call(number, method, args):
                _answer_call(end, rank, number, method, args)
            case Measure(number):
                end.send(Result(number, rank.measure()))
            case Initialize(number, num_blocks):
                rank.initialize(num_blocks)
                end.send(Result(number))


def _answer_call(end: WorkerEnd, rank: Rank, number: int, method: str, args: Sequence[Any]) -> None:
    try:
        end.send(Result(number, rank.call(method, args)))
    except OSError:
        raise
    except Exception as error:  # whatever it is, it belongs to the caller; also a result that cannot be sent
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
