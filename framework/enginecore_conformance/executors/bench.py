"""Bench for checks of executors: submits plans, waits for them, and checks every answer."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple, TypeVar

from enginecore.clock import VirtualClock
from enginecore.errors import EngineCoreError
from enginecore.interfaces import Executor
from enginecore.messages import ModelRunnerOutput, SchedulerOutput
from enginecore.sampling import SamplingParams
from enginecore_conformance.checks import NotApplicable, Violation
from enginecore_conformance.executors.answers import check_answer, expect_logprobs, expect_tokens
from enginecore_conformance.executors.lending import MAX_NUM_SEQS, WORDS, Lender, Standing
from enginecore_conformance.executors.planner import GREEDY, ManualPlanner, Planned, Tracked
from enginecore_conformance.transports.background import Background

T = TypeVar("T")
Work = Mapping[Tracked, int] | Iterable[Tracked]


class FailedWhileWaiting(EngineCoreError):
    """The executor reported its failure before a future was done."""


class Submitted(NamedTuple):
    """A step in flight."""

    planned: Planned
    future: "Future[ModelRunnerOutput | None]"


class ExecutorBench(Background):
    """Plans and executes steps.

    Attributes:
        lender: Lender of the executor.
        executor: The executor under check, with a KV cache once the first step was submitted.
        standing: Clock, context and counters of the executor.
        planner: Makes the plans.
        failures: Failures that its failure callback got.
    """

    def __init__(self, lender: Lender, needs: frozenset[str]) -> None:
        """Borrow the executor for a check that needs these of `WORDS`.

        Raises:
            NotApplicable: it does not have what the check needs.
        """
        super().__init__(lender.patience)
        self.lender = lender
        self.standing: Standing = lender.lend()
        self.executor: Executor = self.standing.executor
        self.planner = ManualPlanner(self.standing)
        self.failures: list[BaseException] = []
        self._wake: Future[None] | None = None
        self._listens = False
        self._is_spoilt = False
        if missing := sorted(needs - self.standing.words):
            raise NotApplicable(f"it is for executors with {' and '.join(WORDS[word] for word in missing)}")

    @property
    def depth(self) -> int:
        """Batches in flight at most, each with a request of its own, and with a seat left."""
        return min(self.executor.capabilities.max_concurrent_batches, MAX_NUM_SEQS - 1)

    def spoil(self) -> Executor:
        """The executor, which no other check will use after this one."""
        self._is_spoilt = True
        self._prepare()
        return self.executor

    def close(self) -> None:
        """Have the executor forget this check's requests, and leave it to the next check."""
        if not self._is_spoilt and (self.planner.running or self.planner.owes):
            self.planner.finish(*self.planner.running)
            try:
                self.step([])
            except Exception:  # whether it must be able to, a check of its own says
                self._is_spoilt = True
        if self._is_spoilt:
            self.lender.drop()

    # -- requests --------------------------------------------------------------------------------------------------

    def prompt(self, name: object, length: int) -> list[int]:
        """Tokens that are different for every name."""
        return Random(repr(name)).choices(range(self.executor.model_info.vocab_size), k=length)

    def add_request(self, prompt: Sequence[int], params: SamplingParams = GREEDY, **more: Any) -> Tracked:
        """A request; takes what `ManualPlanner.add_request` takes."""
        self._prepare()
        return self.planner.add_request(prompt, params, **more)

    def alone(self, prompt: Sequence[int], count: int, params: SamplingParams = GREEDY) -> list[int]:
        """Tokens of a request that runs alone, its prompt in one piece, in blocks one after
        another.
        """
        return self._alone(prompt, count, params).output[:count]

    def expect_as_alone(self, request: Tracked, what: str, count: int | None = None) -> None:
        """A request must have given what it gives alone, if its tokens have content; `what` says
        how it ran.

        Args:
            request: The request to compare.
            what: How it ran.
            count: Number of tokens to compare; None: all.
        """
        if "content" not in self.standing.words:
            return
        count = len(request.output) if count is None else count
        right = self._alone(request.tokens[: request.num_prompt_tokens], count, request.params)
        expect_tokens(request.output[:count], right.output[:count], what)
        if self.standing.context.dtype == "float32":
            expect_logprobs(request.logprobs[:count], right.logprobs[:count], what)

    def _alone(self, prompt: Sequence[int], count: int, params: SamplingParams) -> Tracked:
        key = tuple(prompt), params
        known = self.standing.alone.get(key)
        if known is None or len(known.output) < count:
            known = self.add_request(prompt, params)
            self.generate(known, count)
            self.planner.finish(known)
            self.standing.alone[key] = known
        return known

    # -- steps -----------------------------------------------------------------------------------------------------

    def submit(self, work: Work, *, defer_sampling: bool = False) -> Submitted:
        """A step in flight: so many tokens of each request, or all that are left of each."""
        self._prepare()
        counts = work if isinstance(work, Mapping) else {request: request.left for request in work}
        planned = self.planner.plan_step(counts, defer_sampling=defer_sampling)
        return Submitted(planned, self.executor.execute_model(planned.plan))

    def ask_to_sample(self, submitted: Submitted) -> Submitted:
        """Have a step sampled if it waits for that; what is in flight then."""
        step = submitted.planned.plan.step
        if not submitted.planned.plan.defer_sampling or self.wait(submitted.future, f"step {step}") is not None:
            return submitted
        sampling: Any = self.executor.sample_tokens(step, None)
        return Submitted(submitted.planned, sampling)

    def settle(self, submitted: Submitted) -> ModelRunnerOutput:
        """Wait for a step and take in what it gave."""
        step = submitted.planned.plan.step
        output = self.wait(submitted.future, f"step {step}")
        if output is None:
            output = self.wait(self.executor.sample_tokens(step, None), f"sample_tokens({step})")
        check_answer(submitted.planned, output, self.executor.model_info.vocab_size)
        self.planner.settle(submitted.planned, output)
        return output

    def step(self, work: Work) -> ModelRunnerOutput:
        """One step, from its plan to its answer."""
        return self.settle(self.submit(work))

    def generate(self, request: Tracked, count: int, chunk: int | None = None) -> list[int]:
        """Run a request alone until it has `count` tokens behind its prompt, computing `chunk`
        tokens a step.
        """
        while len(request.output) < count:
            self.step({request: min(chunk or request.left, request.left)})
        return request.output[:count]

    def generate_all(self, requests: Sequence[Tracked], count: int) -> None:
        """Run requests together until each has `count` tokens behind its prompt."""
        while behind := [request for request in requests if len(request.output) < count]:
            self.step(behind)

    def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput | None:
        """Have a plan executed as it is. Whatever is raised, here or by its future, is raised."""
        self._prepare()
        return self.wait(self.executor.execute_model(plan), f"step {plan.step}")

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wait(self, future: "Future[T]", what: str) -> T:
        """The result of a future, which must be done within patience, or the executor must have
        failed.
        """
        self._wake = woken = Future[None]()
        future.add_done_callback(lambda _: _resolve(woken))
        if self.failures:
            _resolve(woken)
        clock = self.standing.clock
        # virtual time does not pass while something hangs; it raises
        deadline = None if isinstance(clock, VirtualClock) else clock.now() + self.patience
        if not clock.wait(woken, deadline):
            self._is_spoilt = True
            raise Violation(
                f"{what} has no end after {self.patience:g} s, and the executor has reported no failure",
                "its future is done, or failure callbacks are called",
            )
        if not future.done():
            self._is_spoilt = True
            raise FailedWhileWaiting(f"{what}: the executor has failed: {self.failures[0]}") from self.failures[0]
        return future.result()

    def error_of(self, what: str, call: Callable[[], Any]) -> BaseException:
        """The error that a call raises; a call without one is a violation."""
        try:
            given = call()
        except Violation:
            raise
        except Exception as error:
            return error
        raise Violation(f"{what} gave {given!r:.200}", "it raises")

    def _prepare(self) -> None:
        """The KV cache is made, and the executor's failure is listened for."""
        self.standing.initialize()
        if not self._listens:
            self._listens = True
            self.executor.register_failure_callback(self._note)

    def _note(self, error: BaseException) -> None:
        self.failures.append(error)
        if self._wake is not None:
            _resolve(self._wake)


def _resolve(future: "Future[None]") -> None:
    with suppress(InvalidStateError):  # it may have been woken already
        future.set_result(None)
