"""A harness that drives a scheduler and the oracle move by move, and checks invariants."""

import itertools
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field

from enginecore.clock import VirtualClock
from enginecore.contracts import KnownRequest, PlanJudge, PlanLimits, WatchedKVCacheManager, WatchedScheduler
from enginecore.errors import InvariantError
from enginecore.interfaces import EvictionOrder, KVCacheConfig, KVCacheManager, Outputs, Scheduler, VictimChoice
from enginecore.messages import EngineCoreRequest, FinishReason, ModelRunnerOutput, SchedulerOutput
from enginecore.plugin import (
    EvictionContext,
    ExecutorContext,
    KVCacheManagerContext,
    SchedulerContext,
    VictimContext,
)
from enginecore.request import Request
from enginecore.sampling import SamplingParams
from enginecore_conformance.invariants import check_conservation, check_quiescence
from enginecore_conformance.oracle.executor import OracleExecutor
from enginecore_conformance.oracle.model import OracleModel
from enginecore_conformance.oracle.settings import OracleSettings
from enginecore_conformance.transcript import Transcript

MAX_STEPS = 100_000
"""More than this for one `run` is no progress."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Under which a scheduler is tried. As the settings of the same names; `num_blocks` is the
    pool.
    """

    num_blocks: int = 64
    block_size: int = 4
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 32
    max_model_len: int = 256
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    oracle: OracleSettings = field(default_factory=OracleSettings)

    @property
    def model(self) -> OracleModel:
        """The ground truth under these conditions; the KV cache needs no slot for a request's last
        token.
        """
        longest = min(self.max_model_len, self.num_blocks * self.block_size + 1)
        return OracleModel(self.oracle.vocab_size, self.oracle.eos_token_ids, longest)


class SchedulerHarness:
    """A scheduler, a KV cache manager and the oracle on a virtual clock.

    Args:
        conditions: Under which.
        make_scheduler: Makes the scheduler.
        make_kv_cache_manager: Makes the KV cache manager.
        make_victim: Makes the victim choice of the scheduler; None: it gets none.
        make_eviction: Makes the order of eviction of the KV cache manager; None: it gets none.
        watch: Check each call to and from both against their contracts, as `debug.check_components`
            does.

    Attributes:
        scheduler: Under test.
        kv_cache_manager: Under test.
        executor: The oracle executor.
        clock: The virtual clock of all of them.
        transcript: Requests and their outputs.
        plans: Every plan that was executed.
        max_in_flight: Most steps that were in flight at once.
    """

    def __init__(
        self,
        conditions: Conditions,
        make_scheduler: Callable[[SchedulerContext], Scheduler],
        make_kv_cache_manager: Callable[[KVCacheManagerContext], KVCacheManager],
        *,
        make_victim: Callable[[VictimContext], VictimChoice] | None = None,
        make_eviction: Callable[[EvictionContext], EvictionOrder] | None = None,
        watch: bool = False,
    ) -> None:
        self.conditions = conditions
        self.clock = VirtualClock()
        self.transcript = Transcript()
        self.plans: list[SchedulerOutput] = []
        self.max_in_flight = 0
        self._arrivals = itertools.count()
        self._in_flight: deque[tuple[SchedulerOutput, Future[ModelRunnerOutput | None]]] = deque()
        self.executor = OracleExecutor(conditions.oracle, self._executor_context())
        cache = KVCacheConfig(
            conditions.num_blocks, conditions.block_size, (tuple(self.executor.get_kv_cache_specs()),)
        )
        self.executor.initialize_from_config(cache)
        manager = make_kv_cache_manager(self._kv_cache_manager_context(cache, make_eviction))
        self.kv_cache_manager: KVCacheManager = WatchedKVCacheManager(manager) if watch else manager
        context = self._scheduler_context(make_victim)
        self._judge = PlanJudge(PlanLimits.of(context), KnownRequest.of)
        self.scheduler: Scheduler = WatchedScheduler(make_scheduler, context) if watch else make_scheduler(context)

    @property
    def num_in_flight(self) -> int:
        """Steps in flight."""
        return len(self._in_flight)

    def add(self, request: EngineCoreRequest) -> None:
        """Send a request."""
        params = request.params
        if not isinstance(params, SamplingParams):
            raise TypeError(f"the oracle samples: params must be SamplingParams, got {type(params).__name__}")
        made = Request(
            request,
            params,
            arrival_number=next(self._arrivals),
            arrival_time=self.clock.now(),
            max_model_len=self.conditions.max_model_len,
            eos_token_ids=self.conditions.oracle.eos_token_ids,
        )
        self.scheduler.add_request(made)
        self.transcript.begin(request)
        self._check()

    def abort(self, request_ids: Iterable[str]) -> None:
        """Abort requests. Outputs that were due to them before come before."""
        ids = list(request_ids)
        self.take_outputs()
        self.scheduler.abort_requests(ids)
        self.transcript.abort(ids)
        self._check()

    def finish(self, request_ids: Iterable[str], reason: FinishReason, error: str | None = None) -> None:
        """End requests on the engine's behalf."""
        self.scheduler.finish_requests(request_ids, reason, error)
        self.take_outputs()
        self._check()

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Forget the prefix cache."""
        done = self.scheduler.reset_prefix_cache(reset_running_requests)
        self._check()
        return done

    def take_outputs(self) -> None:
        """Take the outputs that are due, and record them."""
        self._record(self.scheduler.take_outputs())

    def submit(self) -> SchedulerOutput | None:
        """Plan a step and submit it, if there is room for one and anything to do."""
        if self.num_in_flight >= self.conditions.oracle.depth:
            return None
        plan = self.scheduler.schedule()
        self._judge.read(plan)
        self.take_outputs()
        if not plan.is_empty:
            self._in_flight.append((plan, self.executor.execute_model(plan)))
            self.plans.append(plan)
            self.max_in_flight = max(self.max_in_flight, self.num_in_flight)
        self._check()
        return None if plan.is_empty else plan

    def settle(self) -> bool:
        """Wait for the oldest step in flight and apply it. False: nothing is in flight."""
        if not self._in_flight:
            return False
        plan, future = self._in_flight.popleft()
        self.clock.wait(future)
        output = future.result()
        if output is None:
            output = self.executor.sample_tokens(plan.step, self.scheduler.get_grammar_bitmask(plan)).result()
        self._record(self.scheduler.update_from_output(plan, output))
        self._check()
        return True

    def step(self) -> None:
        """Do one step of an engine: fill the queue of batches first, then wait for the oldest.

        Raises:
            InvariantError: there are requests, and nothing to submit, to wait for or to say.
        """
        told = sum(not story.is_open for story in self.transcript.stories)
        if self.submit() and self.num_in_flight < self.conditions.oracle.depth:
            return
        if self.settle() or not self.scheduler.has_requests():
            return
        if (wake_time := self.scheduler.wake_time) is not None:
            event = self.clock.next_event()  # an arrival, perhaps
            self.clock.wait(deadline=wake_time if event is None else min(wake_time, event))
        elif told == sum(not story.is_open for story in self.transcript.stories):
            raise InvariantError(f"no progress: {self.scheduler.get_stats()} of {self.transcript.open_ids}")

    def run(self, max_steps: int = MAX_STEPS) -> None:
        """Step until everything has ended, then check every output and that nothing is left.

        Raises:
            InvariantError: what does not hold.
        """
        for _ in range(max_steps):
            if not (self.scheduler.has_requests() or self._in_flight):
                break
            self.step()
        else:
            raise InvariantError(f"no end after {max_steps} steps: {self.scheduler.get_stats()}")
        if self.transcript.open_ids:
            raise InvariantError(f"no terminal output for {self.transcript.open_ids}")
        self.transcript.check(self.conditions.model)
        check_quiescence(self.scheduler, self.kv_cache_manager, self.executor)

    def _record(self, outputs: Outputs) -> None:
        for of_client in outputs.values():
            self.transcript.record(of_client)

    def _check(self) -> None:
        check_conservation(self.scheduler, self.kv_cache_manager)

    def _executor_context(self) -> ExecutorContext:
        conditions = self.conditions
        return ExecutorContext(
            model="oracle",
            dtype="auto",
            device="auto",
            max_model_len=conditions.max_model_len,
            block_size=conditions.block_size,
            max_num_seqs=conditions.max_num_seqs,
            max_num_batched_tokens=conditions.max_num_batched_tokens,
            seed=0,
            clock=self.clock,
        )

    def _kv_cache_manager_context(
        self, cache: KVCacheConfig, make_eviction: Callable[[EvictionContext], EvictionOrder] | None
    ) -> KVCacheManagerContext:
        caching = self.conditions.enable_prefix_caching
        context = EvictionContext(num_blocks=cache.num_blocks, block_size=cache.block_size, seed=0)
        eviction = make_eviction(context) if make_eviction and caching else None
        return KVCacheManagerContext(config=cache, enable_prefix_caching=caching, clock=self.clock, eviction=eviction)

    def _scheduler_context(self, make_victim: Callable[[VictimContext], VictimChoice] | None) -> SchedulerContext:
        conditions = self.conditions
        victim = make_victim(VictimContext(max_num_seqs=conditions.max_num_seqs, seed=0)) if make_victim else None
        return SchedulerContext(
            max_num_seqs=conditions.max_num_seqs,
            max_num_batched_tokens=conditions.max_num_batched_tokens,
            max_model_len=conditions.max_model_len,
            enable_chunked_prefill=conditions.enable_chunked_prefill,
            kv_cache_manager=self.kv_cache_manager,
            executor=self.executor.capabilities,
            clock=self.clock,
            victim=victim,
        )
