"""EngineCore: one scheduler, one executor, and the steps between them."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from queue import Empty, SimpleQueue
from typing import Any, cast

from enginecore.clock import Clock
from enginecore.core.admission_checks import check_block_hashes, checked_params
from enginecore.core.batch_queue import BatchInFlight, BatchQueue
from enginecore.core.described_executor import DescribedExecutor, step_error
from enginecore.core.idling import nap_until_wake_time
from enginecore.core.liveness import Liveness
from enginecore.core.reporting import ReportingScheduler
from enginecore.core.utilities import Utilities, call_utility
from enginecore.errors import InvalidRequestError, PluginError
from enginecore.interfaces import Executor, Observer, Outputs, Scheduler
from enginecore.messages import EngineCoreOutputs, EngineCoreRequest, EngineInfo, FinishReason, ModelRunnerOutput
from enginecore.request import Request

StepResult = tuple[Mapping[int, EngineCoreOutputs], bool]
"""Outputs by client, and whether a step was submitted, sampled or settled."""


class EngineCore:
    """Runs requests, step by step, on the caller's thread. Fills `EngineCoreApi`; built by `build_engine_core`."""

    def __init__(
        self,
        *,
        info: EngineInfo,
        scheduler: Scheduler,
        executor: Executor,
        clock: Clock,
        max_num_waiting: int | None = None,
        takes_block_hashes: bool = False,
    ) -> None:
        self.info = info
        self.scheduler = scheduler
        self.executor = cast(Executor, DescribedExecutor(executor))
        self._capabilities = executor.capabilities
        self._clock = clock
        self._takes_block_hashes = takes_block_hashes
        self._liveness = Liveness(clock)
        self._utilities = Utilities(scheduler, executor, info.components["executor"], self._liveness)
        self._most_unfinished = None if max_num_waiting is None else info.max_num_seqs + max_num_waiting
        self._arrivals = itertools.count()
        self._aborts: SimpleQueue[list[str]] = SimpleQueue()
        self._batches = BatchQueue(executor.capabilities)
        executor.register_failure_callback(self._liveness.fail)

    # -- requests --------------------------------------------------------------------------------------------------

    def add_request(self, request: EngineCoreRequest, block_hashes: list[bytes] | None = None) -> None:
        """Accept a request. What the scheduler refuses ends by an output with reason ERROR.

        Args:
            request: The request.
            block_hashes: What its full blocks hold, in place of its token ids, where tokens have no content
                (`model_free`); the engine core's own from here on. Equal hashes must mean equal prefixes, salt and
                adapter included. Blocks behind the last one share nothing. Only in process: no message has room for
                them, since a forged one would read the blocks of another request.

        Raises:
            InvalidRequestError: it can never run, its id is taken, or too many wait; says why.
            EngineDeadError: the engine has failed.
        """
        self._liveness.check()
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
        with self._liveness.dying_of("add_request", spared=InvalidRequestError):
            self._process_aborts()  # an id is free again once its abort was asked for, and so is a place
            if self._most_unfinished is not None:
                self._check_room(request.request_id, self._most_unfinished)
            self.scheduler.add_request(accepted)

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        """End requests without a word; unknown ones are left alone. From any thread: takes effect before the
        outputs of a step that is running are processed.
        """
        self._aborts.put(list(request_ids))

    def abort_client(self, client_index: int) -> None:
        """End all requests of a front end that is gone."""
        with self._liveness.dying_of("abort_client"):
            unfinished = self.scheduler.unfinished_requests
            self.abort_requests(request.request_id for request in unfinished if request.client_index == client_index)

    def finish_all(self, reason: FinishReason) -> Mapping[int, EngineCoreOutputs]:
        """End all requests; their terminal outputs by client."""
        with self._liveness.dying_of("finish_all"):
            self._process_aborts()
            unfinished = [request.request_id for request in self.scheduler.unfinished_requests]
            self.scheduler.finish_requests(unfinished, reason)
            return self._by_client(self.scheduler.take_outputs())

    def has_requests(self) -> bool:
        """Whether `advance` has anything to do."""
        if self._batches or not self._aborts.empty():
            return True
        return self.scheduler.has_outputs if self.is_paused else self.scheduler.has_requests()

    def has_unfinished_requests(self) -> bool:
        """Whether a request has not ended; true of a paused engine that has nothing to do, too."""
        return bool(self.scheduler.unfinished_requests)

    # -- steps -----------------------------------------------------------------------------------------------------

    def advance(self) -> StepResult:
        """One step, if there is anything to do.

        Raises:
            EngineDeadError: this one or an earlier one failed; `__cause__` says why.
        """
        self._liveness.check()
        try:
            return self.step() if self.has_requests() else ({}, False)
        except BaseException as error:
            self._liveness.die("a step", error)

    def step(self) -> StepResult:
        """One iteration, for every depth of the batch queue: submit the next step while there is room for it, then
        settle the oldest. That one is sampled now, so its grammar bitmask knows the tokens of all steps before.
        """
        batches = self._batches
        self._process_aborts()
        if batches.has_room and not self.is_paused:
            scheduled = self.scheduler.schedule()
            if not scheduled.is_empty:
                batches.append(scheduled, self.executor.execute_model(scheduled))
                if batches.has_room:
                    return self._by_client(self.scheduler.take_outputs()), True
        if not batches:
            return self._by_client(self._idle()), False
        oldest = batches.oldest
        grammar = None if oldest.is_sampled else self.scheduler.get_grammar_bitmask(oldest.scheduled)
        while (output := self._wait(oldest)) is None:
            oldest.sample(self.executor.sample_tokens(oldest.scheduled.step, grammar))
            if batches.has_room:  # the next forward pass follows the sampling
                return self._by_client(self.scheduler.take_outputs()), True
        self._process_aborts()
        batches.pop()
        return self._by_client(self.scheduler.update_from_output(oldest.scheduled, output)), True

    def _wait(self, batch: BatchInFlight) -> ModelRunnerOutput | None:
        try:
            output = self._liveness.wait(batch.running)
            if output is None and batch.is_sampled:
                raise PluginError("the executor answered sample_tokens with None, which only execute_model may give")
            return output
        except Exception as error:
            raise step_error(batch.scheduled, error) from error

    def _idle(self) -> Outputs:
        """Nothing can run: outputs that are due all the same, or else some time that passes."""
        outputs = self.scheduler.take_outputs()
        if not (outputs or self.is_paused) and self.scheduler.has_requests():
            nap_until_wake_time(self.scheduler, self._clock, self.info)
        return outputs

    def _by_client(self, outputs: Outputs) -> Mapping[int, EngineCoreOutputs]:
        now = self._clock.now()
        return {client: EngineCoreOutputs(outputs=due, timestamp=now) for client, due in outputs.items()}

    def _process_aborts(self) -> None:
        while True:
            try:
                request_ids = self._aborts.get_nowait()
            except Empty:
                return
            self.scheduler.abort_requests(request_ids)

    def _check_room(self, request_id: str, most: int) -> None:
        unfinished = len(self.scheduler.unfinished_requests)
        if unfinished >= most:
            running = self.scheduler.get_stats().num_running
            raise InvalidRequestError(
                f"request {request_id!r} is refused: {running} are running and {unfinished - running} waiting, and "
                f"beyond max_num_seqs = {self.info.max_num_seqs} at most max_num_waiting = "
                f"{most - self.info.max_num_seqs} may wait; try again later"
            )

    # -- control ---------------------------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """Whether nothing is scheduled until the utility `resume` is called."""
        return self._utilities.is_paused

    def call_utility(self, name: str, *args: Any) -> Any:
        """A control call; see `Utilities` for the names.

        Raises:
            InvalidRequestError: no such utility, or wrong arguments.
            UtilityError: the call failed, and the engine core goes on; says how.
            EngineDeadError: the engine has failed.
        """
        self._liveness.check()
        with self._liveness.dying_of("abort_requests"):
            self._process_aborts()
        return call_utility(self._utilities, name, args)

    def register_failure_callback(self, callback: Callable[[BaseException], None]) -> None:
        """Call `callback` once, from any thread, when the engine core has failed; at once if it has already."""
        self._liveness.register(callback)

    def add_observer(self, observer: Observer) -> None:
        """Record for it the steps that are planned, and the requests that are added, from now on.

        Unlike a plugin's observer it belongs to the caller: an error that it raises is a failure of the engine.
        """
        reporting = ReportingScheduler(
            self.scheduler,
            self._clock,
            tell_of_step=observer.step_finished,
            tell_of_request=observer.request_finished,
        )
        self.scheduler = cast(Scheduler, reporting)

    def shutdown(self) -> None:
        """Release the executor. May be called more than once."""
        self._liveness.end()
        self._batches.clear()
        self.executor.shutdown()
