"""EngineCore: one scheduler, one executor, and the steps between them."""

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from enginecore.clock import Clock
from enginecore.core.admission_checks import check_block_hashes, checked_params
from enginecore.core.life import Life
from enginecore.core.reporting import Reporter
from enginecore.core.step_errors import step_errors
from enginecore.core.utilities import Utilities, call_utility
from enginecore.errors import InvalidRequestError, InvariantError
from enginecore.interfaces import Executor, Observer, Outputs, Scheduler
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
        max_num_waiting: int | None = None,
        check_invariants: bool = False,
        takes_block_hashes: bool = False,
    ) -> None:
        self.info = info
        self.scheduler = scheduler
        self.executor = executor
        self._capabilities = executor.capabilities
        self._reporter = reporter
        self._clock = clock
        self._checks = check_invariants
        self._takes_block_hashes = takes_block_hashes
        self._life = Life(clock)
        self._utilities = Utilities(scheduler, executor, info.components["executor"], self._life)
        self._most_unfinished = None if max_num_waiting is None else info.max_num_seqs + max_num_waiting
        self._arrivals = itertools.count()
        self._aborts: SimpleQueue[list[str]] = SimpleQueue()
        self._in_flight: deque[Submitted] = deque()
        self._may_owe_outputs = False  # matters while paused: the scheduler does not tell them from requests
        executor.register_failure_callback(self._life.fail)

    # -- requests --------------------------------------------------------------------------------------------------

    def add_request(self, request: EngineCoreRequest, block_hashes: list[bytes] | None = None) -> None:
        """Accept a request. What the scheduler refuses ends by an output with reason ERROR.

        Args:
            request: What was asked.
            block_hashes: What its full blocks hold, in place of its token ids, where tokens have no content
                (`model_free`); the engine core's own from here on. Equal hashes must mean equal prefixes, salt and
                adapter included. Blocks behind the last one share nothing. Only in process: no message has room for
                them, since a forged one would read what somebody else's blocks hold.

        Raises:
            InvalidRequestError: it can never run, its id is taken, or too many wait; says why.
            EngineDeadError: the engine has failed.
        """
        self._life.check()
        params = checked_params(request, self.info, self._capabilities, has_content=block_hashes is None)
        if block_hashes is not None:
            check_block_hashes(request, params, block_hashes, self.info, takes_any=self._takes_block_hashes)
        accepted = Request(
            request,
            params,
            arrival_number=next(self._arrivals),
            arrival_time=self._clock.now() if request.arrival_time is None else request.arrival_time,
            max_model_len=self.info.max_model_len,
            eos_token_ids=self.info.eos_token_ids,
            block_hashes=block_hashes,
        )
        with self._life.dying_of("add_request", spared=InvalidRequestError):
            self._process_aborts()  # an id is free again once its abort was asked for, and so is a place
            if self._most_unfinished is not None:
                self._check_room(request.request_id, self._most_unfinished)
            self.scheduler.add_request(accepted)
        self._may_owe_outputs = True
        self._reporter.added(accepted)

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        """End requests without a word; unknown ones are left alone. From any thread: takes effect before the
        outputs of a step that is running are processed.
        """
        self._aborts.put(list(request_ids))

    def abort_client(self, client_index: int) -> None:
        """End all requests of a front end that is gone."""
        with self._life.dying_of("abort_client"):
            unfinished = self.scheduler.unfinished_requests
            self.abort_requests(request.request_id for request in unfinished if request.client_index == client_index)

    def finish_all(self, reason: FinishReason) -> Mapping[int, EngineCoreOutputs]:
        """End all requests; their terminal outputs by client."""
        with self._life.dying_of("finish_all"):
            self._process_aborts()
            unfinished = [request.request_id for request in self.scheduler.unfinished_requests]
            self.scheduler.finish_requests(unfinished, reason)
            return self._outputs(self.scheduler.take_outputs())

    def has_requests(self) -> bool:
        """Whether `advance` has anything to do."""
        if self._in_flight or not self._aborts.empty():
            return True
        return self._may_owe_outputs if self.is_paused else self.scheduler.has_requests()

    def has_unfinished_requests(self) -> bool:
        """Whether a request has not ended; true of a paused engine that has nothing to do, too."""
        return bool(self.scheduler.unfinished_requests)

    # -- steps -----------------------------------------------------------------------------------------------------

    def advance(self) -> StepResult:
        """One iteration, with as many batches in flight as the executor takes.

        Raises:
            EngineDeadError: this one or an earlier one failed; `__cause__` says why.
        """
        self._life.check()
        with self._life.dying_of("a step"):
            if not self.has_requests():
                return {}, False
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
        if self.is_paused:
            return None
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
            output = self._life.wait(running)
            if output is None:
                output = self._life.wait(self.executor.sample_tokens(scheduled.step, grammar))
            return output

    def _settle(self, submitted: Submitted, output: ModelRunnerOutput) -> StepResult:
        outputs = self.scheduler.update_from_output(submitted.scheduled, output)
        if self._checks:
            self.scheduler.check_invariants()
        self._reporter.step_settled(submitted.scheduled, submitted.started, submitted.depth)
        return self._outputs(outputs), True

    def _idle(self) -> StepResult:
        """Nothing ran. That is progress only if somebody was told something, or nobody is left."""
        outputs = self.scheduler.take_outputs()
        self._may_owe_outputs = False
        if self.is_paused or outputs or not self.scheduler.has_requests():
            return self._outputs(outputs), False
        if not self._life.nap(self.scheduler.wake_time):
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

    def _check_room(self, request_id: str, most: int) -> None:
        unfinished = len(self.scheduler.unfinished_requests)
        if unfinished >= most:
            running = self.scheduler.get_stats().num_running
            raise InvalidRequestError(
                f"request {request_id!r} is refused: {running} are running and {unfinished - running} waiting, and "
                f"beyond max_num_seqs = {self.info.max_num_seqs} at most max_num_waiting = "
                f"{most - self.info.max_num_seqs} may wait; try again later"
            )

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

    @property
    def is_paused(self) -> bool:
        """Whether nothing is scheduled until the utility `resume` is called."""
        return self._utilities.is_paused

    def call_utility(self, name: str, *args: Any) -> Any:
        """A control call; see `Utilities` for the names.

        Raises:
            InvalidRequestError: no such utility, or wrong arguments.
            UtilityError: it failed, at no cost to anybody else; says how.
            EngineDeadError: the engine has failed.
        """
        self._life.check()
        with self._life.dying_of("abort_requests"):
            self._process_aborts()
        self._may_owe_outputs = True
        return call_utility(self._utilities, name, args)

    def register_failure_callback(self, callback: Callable[[BaseException], None]) -> None:
        """Call `callback` once, from any thread, when the engine core has failed; at once if it has already."""
        self._life.register(callback)

    def add_observer(self, observer: Observer) -> None:
        """Tell it of steps settled and requests ended from now on; of requests only those that are added from now on.

        Unlike a plugin's observer it belongs to whoever runs the engine: what it raises is a failure of the engine.
        """
        self._reporter.add(observer)

    def shutdown(self) -> None:
        """Release the executor. May be called more than once."""
        self._life.end()
        self._in_flight.clear()
        self.executor.shutdown()
