"""What the workers know, by the plans that they were sent alone, and whether a plan fits that."""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from enginecore.contracts.broken import BrokenRule
from enginecore.contracts.kv_cache import WatchedKVCacheManager
from enginecore.messages import NewRequestData, RequestDelta, SchedulerOutput
from enginecore.plugin import SchedulerContext
from enginecore.request import Request


@dataclass(eq=False, slots=True)
class Row:
    """A request that workers know, from one plan that names it as new to the next that names it as gone.

    Attributes:
        request: It.
        blocks: As told, per KV cache group.
        cursor: Its tokens that are computed or scheduled.
        num_preemptions: How often it had lost its blocks when it was told of.
    """

    request: Request
    blocks: tuple[list[int], ...]
    cursor: int
    num_preemptions: int

    @property
    def is_preempted(self) -> bool:
        """Whether it lost its blocks since."""
        return self.request.num_preemptions != self.num_preemptions


@dataclass(frozen=True, slots=True)
class Sent:
    """A step in flight.

    Attributes:
        plan: Its plan.
        pieces: Rows with tokens in it, and how many.
        sampled: Those whose token comes back.
    """

    plan: SchedulerOutput
    pieces: Mapping[Row, int] = field(default_factory=dict)
    sampled: frozenset[Row] = frozenset()


class WorkerBooks:
    """Reads each plan as a worker does.

    Attributes:
        rows: What workers know, by request id.
        in_flight: Steps that were sent and have not returned, oldest first.
    """

    def __init__(self, context: SchedulerContext, manager: WatchedKVCacheManager) -> None:
        self.rows: dict[str, Row] = {}
        self.in_flight: deque[Sent] = deque()
        self._context = context
        self._manager = manager
        self._last_step: int | None = None
        self._preempted: set[str] = set()  # workers have heard so, and not of their return

    def read(self, plan: SchedulerOutput, live: Mapping[str, Request]) -> None:
        """Check a plan, and remember what it says.

        Raises:
            BrokenRule: it does not fit what was sent before, the requests' own counts, or the limits.
        """
        self._check_budget(plan)
        self._check_repetitions(plan)
        self._forget_gone(plan, live)
        for new in plan.new_requests:
            self._meet(plan, new, live)
        for delta in plan.deltas:
            self._grow(plan, delta)
        if len(self.rows) > self._context.max_num_seqs:
            _broken("budget_is_kept", plan, f"{len(self.rows)} requests hold seats, of {self._context.max_num_seqs}")
        pieces = {self._row(plan, request_id): n for request_id, n in plan.num_scheduled_tokens.items()}
        sampled = frozenset(row for row, n in pieces.items() if self._advance(plan, row, n))
        for row in self.rows.values():
            self._check_cursors(plan, row)
        if not plan.is_empty:
            self.in_flight.append(Sent(plan, pieces, sampled))
            self._last_step = plan.step

    def _check_budget(self, plan: SchedulerOutput) -> None:
        context = self._context
        total, counts = plan.total_num_scheduled_tokens, plan.num_scheduled_tokens
        if total > context.max_num_batched_tokens:
            _broken(
                "budget_is_kept",
                plan,
                f"{total} tokens, with max_num_batched_tokens = {context.max_num_batched_tokens}",
            )
        if len(counts) > context.max_num_seqs:
            _broken("budget_is_kept", plan, f"{len(counts)} requests, with max_num_seqs = {context.max_num_seqs}")
        if self._last_step is not None and plan.step <= self._last_step and not plan.is_empty:
            _broken("each_request_once", plan, f"it comes after step {self._last_step}; steps count up")
        if none := [request_id for request_id, n in counts.items() if n < 1]:
            _broken("each_request_once", plan, f"{none} are scheduled with {[counts[i] for i in none]} tokens")

    @staticmethod
    def _check_repetitions(plan: SchedulerOutput) -> None:
        lists = {
            "finished_ids": plan.finished_ids,
            "preempted_ids": plan.preempted_ids,
            "new_requests": [new.request_id for new in plan.new_requests],
            "deltas": [delta.request_id for delta in plan.deltas],
        }
        for name, ids in lists.items():
            if twice := [request_id for request_id, times in Counter(ids).items() if times > 1]:
                _broken("each_request_once", plan, f"{name} names {twice} twice")

    def _forget_gone(self, plan: SchedulerOutput, live: Mapping[str, Request]) -> None:
        """Ids that it names as gone are gone, and no others."""
        rule, rows = "workers_hear_of_the_gone", self.rows
        ended = {request_id for request_id, row in rows.items() if live.get(request_id) is not row.request}
        lost = {request_id for request_id, row in rows.items() if row.is_preempted} | ended
        if wrong := sorted({*plan.preempted_ids} - lost):
            _broken(rule, plan, f"preempted_ids names {wrong}, which no worker knows, or which hold their blocks")
        if wrong := sorted({*plan.finished_ids} - ended - self._preempted):
            _broken(rule, plan, f"finished_ids names {wrong}, which no worker knows, or which have not ended")
        if untold := sorted(lost.difference(plan.preempted_ids, plan.finished_ids)):
            _broken(rule, plan, f"{untold} ended or lost their blocks, and the workers do not hear of it")
        for request_id in lost:
            del rows[request_id]
        self._preempted.update(plan.preempted_ids)
        self._preempted.difference_update(plan.finished_ids)
        self._preempted.intersection_update(live)

    def _meet(self, plan: SchedulerOutput, new: NewRequestData, live: Mapping[str, Request]) -> None:
        request = live.get(new.request_id)
        if request is None:
            _broken("each_request_once", plan, f"{new.request_id!r} is new in it, and no such request is live")
        if new.request_id in self.rows:
            _broken("each_request_once", plan, f"{new.request_id!r} is new in it, and workers know it already")
        right = {
            "token_ids": request.token_ids,
            "num_prompt_tokens": request.num_prompt_tokens,
            "params": request.params,
            "cache_salt": request.cache_salt,
            "adapter": request.adapter,
            "resumed": request.num_preemptions > 0,
        }
        for name, value in right.items():
            if (told := getattr(new, name)) != value:
                _broken("workers_are_told_what_is", plan, f"{new.request_id!r} has {name} = {told}; right is {value}")
        if request.num_late_tokens:
            _broken("late_tokens_are_kept", plan, f"{request!r} is resumed before its token in flight has come back")
        blocks = tuple(list(group) for group in new.block_ids)
        row = Row(request, blocks, new.num_computed_tokens, request.num_preemptions)
        written = (self._manager.written or {}).get(request, 0)
        if new.num_computed_tokens != written:
            _broken(
                "spans_are_contiguous",
                plan,
                f"{new.request_id!r} begins at token {new.num_computed_tokens}; its cached prefix ends at {written}",
            )
        self.rows[new.request_id] = row
        self._preempted.discard(new.request_id)

    def _grow(self, plan: SchedulerOutput, delta: RequestDelta) -> None:
        row = self._row(plan, delta.request_id)
        if delta.num_computed_tokens != row.cursor:
            _broken(
                "spans_are_contiguous",
                plan,
                f"the delta of {delta.request_id!r} says num_computed_tokens = {delta.num_computed_tokens}; "
                f"{row.cursor} are scheduled so far",
            )
        for held, added in zip(row.blocks, delta.new_block_ids, strict=True):
            held += added

    def _row(self, plan: SchedulerOutput, request_id: str) -> Row:
        row = self.rows.get(request_id)
        if row is None:
            _broken("each_request_once", plan, f"{request_id!r} is in it, and no worker knows it")
        return row

    def _advance(self, plan: SchedulerOutput, row: Row, num_tokens: int) -> bool:
        """Check one piece; whether its token comes back."""
        request, start = row.request, row.cursor
        end = row.cursor = start + num_tokens
        name = f"{request.request_id!r} is to compute its tokens {start} to {end}"
        if end > request.num_tokens and (num_tokens > 1 or not self._context.executor.feeds_tokens):
            _broken("only_known_tokens_are_scheduled", plan, f"{name}, and {request.num_tokens} are known")
        if end > self._context.max_model_len:
            _broken("tokens_have_slots", plan, f"{name}, with max_model_len = {self._context.max_model_len}")
        for group, held in zip(row.blocks, self._manager.get_block_ids(request), strict=True):
            if group != list(held):
                _broken("workers_are_told_what_is", plan, f"{name} in blocks {group}, and it holds {held}")
            if end > len(group) * self._manager.block_size:
                _broken("tokens_have_slots", plan, f"{name}, and holds {len(group)} blocks")
        if start < request.num_tokens and end < request.num_tokens and not self._context.enable_chunked_prefill:
            _broken("prompts_stay_whole", plan, f"{name} of {request.num_tokens}, without chunked prefill")
        return end >= request.num_tokens

    def _check_cursors(self, plan: SchedulerOutput, row: Row) -> None:
        request = row.request
        if request.num_scheduled_tokens != row.cursor:
            _broken(
                "spans_are_contiguous",
                plan,
                f"num_scheduled_tokens of {request.request_id!r} is {request.num_scheduled_tokens}; {row.cursor} of "
                "its tokens are scheduled",
            )

    def settle(self, plan: SchedulerOutput) -> Sent:
        """The oldest step has returned: what it wrote is written."""
        if not self.in_flight or self.in_flight[0].plan.step != plan.step:
            steps = [sent.plan.step for sent in self.in_flight]
            raise BrokenRule("scheduler", "each_request_once", f"step {plan.step} returns, and in flight are {steps}")
        sent = self.in_flight.popleft()
        written = self._manager.written
        for row, num_tokens in sent.pieces.items():
            if not row.is_preempted and written is not None and row.request in written:
                written[row.request] += num_tokens
        return sent


def _broken(rule: str, plan: SchedulerOutput, seen: str) -> NoReturn:
    raise BrokenRule("scheduler", rule, f"in step {plan.step}, {seen}")
