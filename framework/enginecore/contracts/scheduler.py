"""WatchedScheduler: a scheduler whose plans, outputs and counts are checked in every call."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, NoReturn

from enginecore.contracts.books import SchedulerBooks, SentStep, WatchedRow
from enginecore.contracts.broken import BrokenRule
from enginecore.contracts.kv_cache import WatchedKVCacheManager
from enginecore.contracts.open_requests import OpenRequest, OpenRequests, rows_of
from enginecore.errors import InvalidRequestError
from enginecore.interfaces import Outputs, Scheduler
from enginecore.messages import (
    FinishReason,
    GrammarOutput,
    ModelRunnerOutput,
    SchedulerOutput,
    SchedulerStats,
)
from enginecore.plugin import SchedulerContext
from enginecore.request import Request

NOTHING = ModelRunnerOutput(step=-1)


class WatchedScheduler(Scheduler):
    """Fills `Scheduler` by another one, which is made with a watched KV cache manager.

    Args:
        make: Makes the scheduler.
        context: The context that it was built with.
    """

    def __init__(self, make: Callable[[SchedulerContext], Scheduler], context: SchedulerContext) -> None:
        manager = context.kv_cache_manager
        self._manager = manager if isinstance(manager, WatchedKVCacheManager) else WatchedKVCacheManager(manager)
        self._manager.written = {}
        self._context = replace(context, kv_cache_manager=self._manager)
        self._books = SchedulerBooks(self._context, self._manager)
        self._open = OpenRequests(self._manager.num_blocks * self._manager.block_size)
        self._stalled = False
        self._scheduler = make(self._context)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)

    # -- requests --------------------------------------------------------------------------------------------------

    def add_request(self, request: Request) -> None:
        is_taken = request.request_id in self._unfinished()
        try:
            self._scheduler.add_request(request)
        except InvalidRequestError as error:
            if not is_taken:
                _broken("ids_are_unique_among_the_live", f"{request.request_id!r} is refused, and it is free: {error}")
            raise
        if is_taken:
            _broken("ids_are_unique_among_the_live", f"{request.request_id!r} is accepted twice")
        self._open.add_request(request)
        self._stalled = False

    def has_request(self, request_id: str) -> bool:
        return self._scheduler.has_request(request_id)

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        ids = list(request_ids)
        live = self._unfinished()
        self._scheduler.abort_requests(ids)
        for request_id in ids:
            if request_id in live:
                self._open.live.pop(request_id, None)
        self._check_ended(ids, "abort_requests")

    def finish_requests(self, request_ids: Iterable[str], reason: FinishReason, error: str | None = None) -> None:
        ids = list(request_ids)
        live = self._unfinished()
        self._scheduler.finish_requests(ids, reason, error)
        for request_id in ids:
            if request_id in live and (entry := self._open.live.get(request_id)):
                entry.ending = reason, error
        self._check_ended(ids, "finish_requests")

    def _check_ended(self, ids: list[str], name: str) -> None:
        if left := [request_id for request_id in ids if request_id in self._unfinished()]:
            _broken("cancelled_requests_end_at_once", f"after {name} {left} are unfinished")

    # -- steps -----------------------------------------------------------------------------------------------------

    def schedule(self) -> SchedulerOutput:
        plan = self._scheduler.schedule()
        live = self._unfinished()
        self._books.read_plan(plan, live)
        for new in plan.new_requests:
            entry = self._open.live.get(new.request_id)
            if entry and not entry.has_run:
                # one that lost its blocks in the very step that it got them was looked up before, too
                looked_up = entry.request.num_cached_tokens if new.resumed else new.num_computed_tokens
                entry.has_run, entry.num_cached_tokens = True, looked_up
        self._stalled = plan.is_empty and not self._books.in_flight and bool(live)
        return plan

    def get_grammar_bitmask(self, scheduled: SchedulerOutput) -> GrammarOutput | None:
        return self._scheduler.get_grammar_bitmask(scheduled)

    def update_from_output(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> Outputs:
        sent = self._books.settle(scheduled)
        due = {row: self._open.live[row.request.request_id] for row in sent.pieces if self._is_live(row)}
        outputs = self._scheduler.update_from_output(scheduled, output)
        tokens = _tokens_of(sent, output)
        for row, entry in due.items():
            self._check_outputs(row, entry, tokens, output, outputs)
        self._open.take_outputs(
            outputs, {row.request: tokens.get(row, []) for row in due if row in sent.sampled}, output
        )
        for row in due:
            self._check_computed(row, sent)
        self._check_counts()
        return outputs

    def take_outputs(self) -> Outputs:
        announced = self._scheduler.has_outputs
        outputs = self._scheduler.take_outputs()
        if announced is not bool(outputs):
            _broken("has_outputs_is_true", f"has_outputs is {announced}, and take_outputs() gave {outputs}")
        self._open.take_outputs(outputs, {}, NOTHING)
        self._check_counts()
        if self._stalled and not outputs and self._open.live:
            wake_time, now = self._scheduler.wake_time, self._context.clock.now()
            if wake_time is None or wake_time <= now:
                _broken(
                    "progress_or_a_wake_time",
                    f"nothing is planned, in flight or said, {list(self._open.live)} wait, and at {now} wake_time is "
                    f"{wake_time}",
                )
        self._stalled = False
        return outputs

    # -- outputs and counts ----------------------------------------------------------------------------------------

    def _is_live(self, row: WatchedRow) -> bool:
        entry = self._open.live.get(row.request.request_id)
        return entry is not None and entry.request is row.request and entry.ending is None

    def _check_outputs(
        self,
        row: WatchedRow,
        entry: OpenRequest,
        tokens: dict[WatchedRow, list[int]],
        output: ModelRunnerOutput,
        outputs: Outputs,
    ) -> None:
        """A request in the step that has not ended since gets its output, whatever else became of it."""
        request_id = row.request.request_id
        told = [out for due in outputs.values() for out in due if out.request_id == request_id]
        if request_id in output.errors or (row in tokens and len(tokens[row]) != 1):
            if not told or told[-1].finish_reason is not FinishReason.ERROR:
                _broken(
                    "faults_stay_with_their_request",
                    f"step {output.step} gave {output.errors.get(request_id, tokens.get(row))} for {request_id!r}, and "
                    f"its client gets {told}; right is an end by ERROR",
                )
        elif row in tokens and not told:
            _broken(
                "late_tokens_are_kept", f"step {output.step} gave {request_id!r} a token, and its client gets nothing"
            )

    def _check_computed(self, row: WatchedRow, sent: SentStep) -> None:
        request = row.request
        if not self._is_live(row) or row.is_preempted:
            return
        right = (self._manager.written or {}).get(request)
        if right is not None and request.num_computed_tokens != right:
            _broken(
                "spans_are_contiguous",
                f"after step {sent.plan.step}, num_computed_tokens of {request.request_id!r} is "
                f"{request.num_computed_tokens}; {right} of its tokens are written",
            )

    def _check_counts(self) -> None:
        """Check the scheduler's counts of requests, while no output is due."""
        live = self._unfinished()
        if list(live) != list(self._open.live):
            _broken(
                "unfinished_requests_are_listed",
                f"unfinished_requests are {list(live)}; right is {list(self._open.live)}",
            )
        untold = [i for i, row in self._books.known.items() if live.get(i) is not row.request or row.is_preempted]
        right = bool(live or untold or self._books.in_flight)
        if self._scheduler.has_requests() is not right:
            _broken(
                "has_requests_is_true",
                f"has_requests() is {self._scheduler.has_requests()} with {list(live)} unfinished, "
                f"{len(self._books.in_flight)} steps in flight, and {untold} gone without the workers' knowledge",
            )

    def _unfinished(self) -> dict[str, Request]:
        return {request.request_id: request for request in self._scheduler.unfinished_requests}

    # -- all requests ----------------------------------------------------------------------------------------------

    def has_requests(self) -> bool:
        return self._scheduler.has_requests()

    @property
    def has_outputs(self) -> bool:
        return self._scheduler.has_outputs

    @property
    def wake_time(self) -> float | None:
        return self._scheduler.wake_time

    @property
    def unfinished_requests(self) -> Collection[Request]:
        return self._scheduler.unfinished_requests

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        holders = list(self._manager.holders)
        done = self._scheduler.reset_prefix_cache(reset_running_requests)
        must = not holders or (reset_running_requests and self._context.executor.in_order)
        if (must and not done) or (done and not must and not reset_running_requests):
            _broken(
                "reset_forgets_all_or_nothing",
                f"reset_prefix_cache({reset_running_requests}) gave {done} while "
                f"{[request.request_id for request in holders]} held blocks",
            )
        if not reset_running_requests and list(self._manager.holders) != holders:
            _broken("reset_forgets_all_or_nothing", "reset_prefix_cache(False) took blocks from requests")
        return done

    def get_stats(self) -> SchedulerStats:
        stats = self._scheduler.get_stats()
        manager = self._manager.get_stats()
        num_running = stats.num_running
        words = (stats.num_blocks, stats.num_free_blocks, stats.num_cached_blocks, stats.prefix_cache_queries,
                 stats.prefix_cache_hits, num_running + stats.num_waiting)  # fmt: skip
        right = (manager.num_blocks, manager.num_free_blocks, manager.num_cached_blocks, manager.queries, manager.hits,
                 len(self._scheduler.unfinished_requests))  # fmt: skip
        if words != right or not 0 <= num_running <= self._context.max_num_seqs:
            _broken("stats_agree", f"get_stats() gave {stats}; by the KV cache manager and the requests: {right}")
        return stats

    def check_invariants(self) -> None:
        self._scheduler.check_invariants()


def _tokens_of(sent: SentStep, output: ModelRunnerOutput) -> dict[WatchedRow, list[int]]:
    """Tokens of each request that was to be sampled; none for one that the executor left out."""
    return {row: rows_of(output, row.request.request_id) for row in sent.sampled}


def _broken(rule: str, seen: str) -> NoReturn:
    raise BrokenRule("scheduler", rule, seen)
