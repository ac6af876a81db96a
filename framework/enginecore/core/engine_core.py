"""EngineCore: one scheduler, one executor, and the steps between them."""

import itertools
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from enginecore.clock import Clock
from enginecore.core.admission_checks import checked_params
from enginecore.core.reporting import Reporter
from enginecore.core.step_errors import step_errors
from enginecore.core.utilities import Utilities
from enginecore.errors import EngineDeadError, InvalidRequestError, InvariantError
from enginecore.interfaces import Executor, Outputs, Scheduler
from enginecore.messages import (
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineInfo,
    FinishReason,
    GrammarOutput,
    ModelRunnerOutput,
    SchedulerOutput,
)
from enginecore.request import Request

NAP = 0.001
"""Seconds to sleep at a time while the scheduler puts requests off."""

T = TypeVar("T")
StepResult = tuple[Mapping[int, EngineCoreOutputs], bool]


class Submitted(NamedTuple):
    """A step in flight.

    Attributes:
        scheduled: Its plan.
        running: The executor's future.
        grammar: Bitmasks for sampling it, if any request is constrained.
        started: Seconds on the engine's clock when it was scheduled.
        depth: Batches in flight when it was submitted, itself included.
    """

    scheduled: SchedulerOutput
    running: "Future[ModelRunnerOutput | None]"
    grammar: GrammarOutput | None
    started: float
    depth: int


class EngineCore:
    """Runs requests, step by step, on the caller's thread. Fills `EngineCoreApi`; built by `build_engine_core`."""

    def __init__(
        self,
        *,
        info: EngineInfo,
        scheduler: Scheduler,
        executor: Executor,
        reporter: Reporter,
        clock: Clock,
        check_invariants: bool = False,
    ) -> None:
        self.info = info
        self.scheduler = scheduler
        self.executor = executor
        self._capabilities = executor.capabilities
        self._reporter = reporter
        self._clock = clock
        self._checks = check_invariants
        self._utilities = Utilities(scheduler, executor)
        self._pid = os.getpid()
        self._arrivals = itertools.count()
        self._aborts: SimpleQueue[list[str]] = SimpleQueue()
        self._in_flight: deque[Submitted] = deque()
        self._failure: BaseException | None = None
        self._wake: Future[None] | None = None  # of whoever waits for the executor
        executor.register_failure_callback(self._fail)

    # -- requests --------------------------------------------------------------------------------------------------

    def add_request(self, request: EngineCoreRequest) -> None:
        """Accept a request. What the scheduler refuses ends by an output with reason ERROR.

        Raises:
            InvalidRequestError: it can never run, or its id is taken; says why.
            EngineDeadError: the engine has failed.
        """
        self._check_alive()
        params = checked_params(request, self.info, self._capabilities)
        accepted = Request(
            request,
            params,
            arrival_number=next(self._arrivals),
            arrival_time=self._clock.now() if request.arrival_time is None else request.arrival_time,
            max_model_len=self.info.max_model_len,
            eos_token_ids=self.info.eos_token_ids,
        )
        with self._dying_of("add_request", spared=InvalidRequestError):
            self._process_aborts()  # an id is free again once its abort was asked for
            self.scheduler.add_request(accepted)
        self._reporter.added(accepted)

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        """End requests without a word; unknown ones are left alone. From any thread: takes effect before the
        outputs of a step that is running are processed.
        """
        self._aborts.put(list(request_ids))

    def finish_all(self, reason: FinishReason) -> Mapping[int, EngineCoreOutputs]:
        """End all requests; their terminal outputs by client."""
        with self._dying_of("finish_all"):
            self._process_aborts()
            unfinished = [request.request_id for request in self.scheduler.unfinished_requests]
            self.scheduler.finish_requests(unfinished, reason)
            return self._outputs(self.scheduler.take_outputs())

    def has_requests(self) -> bool:
        """Whether `advance` has anything to do."""
        return bool(self._in_flight) or not self._aborts.empty() or self.scheduler.has_requests()

    # -- steps -----------------------------------------------------------------------------------------------------

    def advance(self) -> StepResult:
        """One iteration, with as many batches in flight as the executor takes.

        Raises:
            EngineDeadError: this one or an earlier one failed; `__cause__` says why.
        """
        self._check_alive()
        with self._dying_of("a step"):
            return self.step() if self._capabilities.max_concurrent_batches == 1 else self.step_with_batch_queue()

    def step(self) -> StepResult:
        """Schedule, execute, settle: one batch at a time."""
        self._process_aborts()
        submitted = self._submit()
        if submitted is None:
            return self._idle()
        output = self._result(submitted)
        self._process_aborts()
        return self._settle(submitted, output)

    def step_with_batch_queue(self) -> StepResult:
        """The same with several batches in flight: fill the queue first, then wait for the oldest."""
        self._process_aborts()
        if len(self._in_flight) < self._capabilities.max_concurrent_batches and (submitted := self._submit()):
            self._in_flight.append(submitted)
            if len(self._in_flight) < self._capabilities.max_concurrent_batches:
                return self._outputs(self.scheduler.take_outputs()), True
        if not self._in_flight:
            return self._idle()
        oldest = self._in_flight.popleft()
        output = self._result(oldest)
        self._process_aborts()
        return self._settle(oldest, output)

    def _submit(self) -> Submitted | None:
        """Plan a step and hand it to the executor; None if there is nothing to run."""
        started = self._clock.now()
        scheduled = self.scheduler.schedule()
        if self._checks:
            self._check_plan(scheduled)
        if scheduled.is_empty:
            return None
        with step_errors(scheduled):
            running = self.executor.execute_model(scheduled)
        grammar = self.scheduler.get_grammar_bitmask(scheduled)
        return Submitted(scheduled, running, grammar, started, len(self._in_flight) + 1)

    def _result(self, submitted: Submitted) -> ModelRunnerOutput:
        """Wait for a step, and have it sampled if the executor wants to be asked."""
        scheduled, running, grammar, _, _ = submitted
        with step_errors(scheduled):
            output = self._await(running)
            if output is None:
                output = self._await(self.executor.sample_tokens(scheduled.step, grammar))
            return output

    def _await(self, running: "Future[T]") -> T:
        """Wait for a future of the executor, or for its failure callback, which may come instead."""
        if not running.done():
            self._wake = wake = Future[None]()
            running.add_done_callback(lambda _: _resolve(wake))
            if self._failure is None:
                self._clock.wait(wake)
            self._wake = None
        if not running.done() and self._failure is not None:
            raise self._failure
        return running.result()

    def _settle(self, submitted: Submitted, output: ModelRunnerOutput) -> StepResult:
        outputs = self.scheduler.update_from_output(submitted.scheduled, output)
        if self._checks:
            self.scheduler.check_invariants()
        self._reporter.step_settled(submitted.scheduled, submitted.started, submitted.depth)
        return self._outputs(outputs), True

    def _idle(self) -> StepResult:
        """Nothing ran. That is progress only if somebody was told something, or nobody is left."""
        outputs = self.scheduler.take_outputs()
        if self.scheduler.has_requests() and not outputs and not self._nap():
            stuck = self.scheduler.unfinished_requests
            first = next(iter(stuck), None)
            stats = self.scheduler.get_stats()
            raise InvariantError(
                f"no progress: scheduler {self.info.components['scheduler']!r} schedules nothing although {len(stuck)} "
                f"requests are unfinished and none is in flight; the first is {first!r}; {stats.num_free_blocks} of "
                f"{stats.num_blocks} blocks are free, max_num_batched_tokens = {self.info.max_num_batched_tokens}, "
                f"max_num_seqs = {self.info.max_num_seqs}"
            )
        return self._outputs(outputs), False

    def _nap(self) -> bool:
        """Let time pass towards the scheduler's wake-up time, if it has one; briefly, since requests may arrive."""
        wake_time = self.scheduler.wake_time
        if wake_time is None:
            return False
        self._clock.wait(deadline=min(wake_time, self._clock.now() + NAP))
        return True

    def _outputs(self, outputs: Outputs) -> Mapping[int, EngineCoreOutputs]:
        self._reporter.emitted(outputs)
        now = self._clock.now()
        return {client: EngineCoreOutputs(outputs=due, timestamp=now) for client, due in outputs.items()}

    def _process_aborts(self) -> None:
        while True:
            try:
                request_ids = self._aborts.get_nowait()
            except Empty:
                return
            self.scheduler.abort_requests(request_ids)
            self._reporter.aborted(request_ids)

    def _check_plan(self, scheduled: SchedulerOutput) -> None:
        """Budget, as of `debug.check_invariants`, and the scheduler's own books."""
        tokens, requests = scheduled.total_num_scheduled_tokens, len(scheduled.num_scheduled_tokens)
        if tokens > self.info.max_num_batched_tokens or requests > self.info.max_num_seqs:
            raise InvariantError(
                f"step {scheduled.step} schedules {tokens} tokens of {requests} requests, above max_num_batched_tokens"
                f" = {self.info.max_num_batched_tokens} or max_num_seqs = {self.info.max_num_seqs}"
            )
        self.scheduler.check_invariants()

    # -- control ---------------------------------------------------------------------------------------------------

    def call_utility(self, name: str, *args: Any) -> Any:
        """A control call; see `Utilities` for the names.

        Raises:
            InvalidRequestError: no such utility, or wrong arguments.
            EngineDeadError: the engine has failed.
        """
        self._check_alive()
        with self._dying_of("abort_requests"):
            self._process_aborts()
        return self._utilities.call(name, *args)

    def shutdown(self) -> None:
        """Release the executor. May be called more than once."""
        if self._failure is None:
            self._failure = EngineDeadError("the engine core was shut down")
        self._in_flight.clear()
        self.executor.shutdown()

    @contextmanager
    def _dying_of(self, what: str, spared: type[Exception] | tuple[()] = ()) -> Iterator[None]:
        """Whatever escapes here, but for what is spared, leaves the books in an unknown state: the engine is dead."""
        try:
            yield
        except spared:
            raise
        except BaseException as error:
            self._fail(error)
            if not isinstance(error, Exception):  # an interrupt goes on as what it is
                raise
            raise EngineDeadError(f"the engine core has failed in {what}: {type(error).__name__}: {error}") from error

    def _fail(self, error: BaseException) -> None:
        """Remember the first failure, and wake whoever waits for the executor. From any thread."""
        if self._failure is None:
            self._failure = error
        if (wake := self._wake) is not None:
            _resolve(wake)

    def _check_alive(self) -> None:
        if os.getpid() != self._pid:
            raise EngineDeadError(
                f"this engine core runs in process {self._pid}, and this is process {os.getpid()}, forked from it: its "
                "threads were left behind; start an engine here, in a process made by spawn"
            )
        if self._failure is not None:
            raise EngineDeadError(f"the engine core is dead: {self._failure}") from self._failure


def _resolve(wake: "Future[None]") -> None:
    with suppress(InvalidStateError):  # the future and the failure may come at the same time
        wake.set_result(None)
