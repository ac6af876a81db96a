"""WorkerGroup: worker processes and the one thread that listens to them. Free of torch."""

import os
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from pathlib import Path
from typing import Any

from enginecore.errors import EngineCoreError, EngineDeadError
from enginecore.failure import FirstFailure
from enginecore.messages import ModelRunnerOutput, SchedulerOutput
from enginecore.processes import ChildProcess
from enginecore_torch.multiproc.control import (
    Answer,
    CallDone,
    CallFailed,
    ExecutorEnd,
    Order,
    RankFailed,
    RankReady,
    RunStep,
    SampleStep,
    StepDone,
    encode,
    remote_error,
)
from enginecore_torch.multiproc.orders import Orders
from enginecore_torch.rank import RankInfo

TICK = 0.5
"""Seconds between two looks at the clock."""
GRACE = 0.25
"""Seconds that other ranks get to say what went wrong before the first that complained is believed.
"""
HANG_TIMEOUT = 1.0
"""Seconds that ranks get to print where they hang."""
EXIT_TIMEOUT = 1.0
"""Seconds that workers get to end by themselves."""
JOIN_TIMEOUT = 10.0
"""Seconds after which a shutdown returns, whatever hangs."""
SHUT_DOWN = "the executor was shut down"


class Worker:
    """One rank's process, as the executor sees it."""

    def __init__(self, target: str, payload: Mapping[str, Any], rank: int) -> None:
        ours, theirs = socket.socketpair()
        try:
            payload = {**payload, "rank": rank, "fd": theirs.fileno()}
            title = f"enginecore-rank-{rank}"
            self.process = ChildProcess(target, payload, title=title, fds=[theirs.fileno()])
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self.rank = rank
        self.end = ExecutorEnd(ours)
        self.info: RankInfo | None = None
        self.report: RankFailed | None = None

    @property
    def name(self) -> str:
        """For people."""
        return f"rank {self.rank} (process {self.process.pid})"


class WorkerGroup:
    """All ranks. If one fails, all are ended, and every future that waits gets its error.

    Attributes:
        directory: Private to this group; gone with it.
    """

    def __init__(
        self,
        target: str,
        payload: Mapping[str, Any],
        num_ranks: int,
        *,
        step_timeout: float,
        on_output: Callable[[ModelRunnerOutput], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the processes.

        Args:
            target: "module:function" that a worker runs.
            payload: Plain data for all of them; each gets its "rank", its socket "fd" and the
                "directory" besides.
            num_ranks: How many.
            step_timeout: Seconds after which a step has failed.
            on_output: Called with each step's output before its future is done, on the listening
                thread.
            now: Seconds on the clock that steps are timed by.
        """
        self._step_timeout, self._on_output = step_timeout, on_output
        self._orders = Orders(num_ranks, now)
        self._sending = threading.Lock()  # so that orders leave in the same order to all ranks
        self._failure = FirstFailure("the executor")
        self._verdict_at: float | None = None
        self._ready: Future[list[RankInfo]] = Future()
        self._workers: list[Worker] = []
        self._wake, self._woken = socket.socketpair()
        self.directory = Path(tempfile.mkdtemp(prefix="ec-ranks-"))
        try:
            payload = {**payload, "directory": str(self.directory)}
            for rank in range(num_ranks):
                self._workers.append(Worker(target, payload, rank))
            self._thread = threading.Thread(target=self._watch, name="watch-workers", daemon=True)
            self._thread.start()
        except BaseException:
            self._end_workers(0.0)
            self._wake.close()
            self._woken.close()
            raise

    # -- for the executor, from any thread ---------------------------------------------------------

    @property
    def pids(self) -> list[int]:
        """Process ids in order of rank."""
        return [worker.process.pid for worker in self._workers]

    def await_ready(self, timeout: float) -> list[RankInfo]:
        """What each rank says once it is loaded, in order.

        Raises:
            EngineCoreError: one cannot be loaded: what it met; or not in time.
        """
        try:
            return self._ready.result(timeout)
        except FutureTimeout:
            late = [worker.name for worker in self._workers if worker.info is None]
            raise EngineCoreError(
                f"{', '.join(late)} did not load the model within startup_timeout = {timeout:g} seconds; if it needs "
                "longer, raise executor.multiproc.startup_timeout"
            ) from None

    def send_step(self, order: Callable[[int], RunStep | SampleStep]) -> "Future[Any]":
        """Send all ranks an order, made from its number, which one answers with a step's output."""
        with self._sending:
            number, future = self._orders.add_step()
            self._send(order(number))
        return future

    def send_forward(self, plan: SchedulerOutput, sampled: list[tuple[int, list[int]]]) -> None:
        """Have all ranks run the forward pass of a step that is sampled later. No rank answers."""
        with self._sending:
            self._send(RunStep(self._orders.new_number(), plan, sampled))

    def send(self, order: Callable[[int], Order]) -> "Future[list[Any]]":
        """Send all ranks an order, made from its number; the future has their answers by rank."""
        with self._sending:
            number, future = self._orders.add_call()
            self._send(order(number))
        return future

    def _send(self, order: Order) -> None:
        try:
            data = encode(order)
        except BaseException:
            self._orders.drop(order.number)
            raise
        for worker in self._workers:
            with suppress(OSError):  # it has gone: the listener learns why
                worker.end.send(data)

    def check(self) -> None:
        """Return if orders can be followed.

        Raises:
            EngineDeadError: they cannot; says why.
        """
        self._orders.check()

    def call_on_failure(self, callback: Callable[[BaseException], None]) -> None:
        """Call it once when a rank fails; at once if one has."""
        self._failure.register(callback)

    def shutdown(self) -> None:
        """End all ranks and release everything. May be called more than once, from any thread."""
        self._orders.refuse(EngineDeadError(SHUT_DOWN), SHUT_DOWN)
        with suppress(OSError):
            self._wake.send(b"x")
        if threading.current_thread() is not self._thread and not sys.is_finalizing():
            self._thread.join(JOIN_TIMEOUT)

    # -- on the listening thread -------------------------------------------------------------------

    def _watch(self) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._woken, selectors.EVENT_READ, None)
                for worker in self._workers:
                    selector.register(worker.end, selectors.EVENT_READ, worker)
                    selector.register(worker.process, selectors.EVENT_READ, worker)
                self._listen(selector)
        except Exception as error:  # whatever it is, no future may wait for ever
            self._fail(error)
        finally:
            self._wake_all()  # before the workers end: they may take their time
            self._end_workers(EXIT_TIMEOUT)
            self._wake.close()
            self._woken.close()

    def _listen(self, selector: selectors.BaseSelector) -> None:
        """Until the first failure, or shutdown."""
        while self._orders.ended is None:
            patience = TICK if self._verdict_at is None else max(self._verdict_at - time.monotonic(), 0.0)
            for worker in {key.data for key, _ in selector.select(patience)} - {None}:
                self._read(worker)
            self._look_at_the_clock()

    def _read(self, worker: Worker) -> None:
        ended = worker.process.has_ended  # before the last answers are read
        for answer in worker.end.receive():
            self._take(worker, answer)
        if ended and worker.report is None:
            worker.process.wait(EXIT_TIMEOUT)
            when = "" if worker.info else " before it was ready; what it printed says more"
            self._fail(EngineDeadError(f"{worker.name} {worker.process.exit_text}{when}"))

    def _take(self, worker: Worker, answer: Answer) -> None:
        match answer:
            case RankReady(info):
                worker.info = info
                if all(worker.info for worker in self._workers):
                    self._ready.set_result([worker.info for worker in self._workers if worker.info])
            case StepDone(number, output):
                self._on_output(output)
                self._orders.step_done(number, output)
            case CallDone(number, value):
                self._orders.answered(number, worker.rank, value)
            case CallFailed(number):
                self._orders.call_failed(number, remote_error(worker.rank, answer))
            case RankFailed():
                # its peers fail with it, and one that died says nothing: the first cause is the one
                # that counts
                worker.report = answer
                self._verdict_at = self._verdict_at or time.monotonic() + GRACE

    def _look_at_the_clock(self) -> None:
        if self._verdict_at is not None and time.monotonic() >= self._verdict_at:
            reports = [(w.report.when, w.rank, w.report) for w in self._workers if w.report is not None]
            _, rank, report = min(reports, key=lambda entry: entry[:2])
            self._fail(remote_error(rank, report))
        elif self._orders.stalled_for() >= self._step_timeout:
            self._ask_where_they_hang()
            self._fail(
                EngineDeadError(
                    f"a step was not finished within execute_timeout = {self._step_timeout:g} seconds by the "
                    f"{len(self._workers)} ranks; each has printed where it hangs"
                )
            )

    def _ask_where_they_hang(self) -> None:
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
        time.sleep(HANG_TIMEOUT)

    def _fail(self, error: BaseException) -> None:
        """End all ranks, fail the futures that wait, call the callbacks, at the first failure."""
        if not self._orders.refuse(error, f"the executor has failed: {error}"):
            return
        self._end_workers(0.0)
        self._wake_all()
        self._failure.fail(error)

    def _wake_all(self) -> None:
        self._orders.fail_all()
        with suppress(InvalidStateError):
            self._ready.set_exception(self._orders.ended)

    def _end_workers(self, patience: float) -> None:
        """Hang up, wait `patience` seconds, and kill those that remain. May be called again."""
        for worker in self._workers:
            worker.end.close()
        deadline = time.monotonic() + patience
        for worker in self._workers:
            worker.process.wait(max(deadline - time.monotonic(), 0.0))
        for worker in self._workers:
            worker.process.kill()
        shutil.rmtree(self.directory, ignore_errors=True)
