"""SchedulerBooks: plans compared with the scheduler's own requests and the KV cache manager's tables."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from enginecore.contracts.broken import BrokenRule
from enginecore.contracts.kv_cache import WatchedKVCacheManager
from enginecore.contracts.plans import KnownRequest, PlanJudge, PlanLimits, broken
from enginecore.messages import NewRequestData, SchedulerOutput
from enginecore.plugin import SchedulerContext
from enginecore.request import Request


@dataclass(eq=False, slots=True)
class WatchedRow(KnownRequest):
    """A request that workers know, and what the scheduler knows of it.

    Attributes:
        request: The scheduler's.
        num_preemptions: How often it had lost its blocks when the workers met it.
    """

    request: Request
    num_preemptions: int

    @property
    def is_preempted(self) -> bool:
        """Whether it lost its blocks since."""
        return self.request.num_preemptions != self.num_preemptions


@dataclass(frozen=True, slots=True)
class SentStep:
    """A step in flight.

    Attributes:
        plan: The plan of the step.
        pieces: Requests with tokens in it, and how many.
        sampled: Requests whose token comes back.
    """

    plan: SchedulerOutput
    pieces: Mapping[WatchedRow, int]
    sampled: frozenset[WatchedRow]


class SchedulerBooks(PlanJudge[WatchedRow]):
    """Judges plans by what the scheduler and the KV cache manager hold, too.

    Attributes:
        in_flight: Steps that were sent and have not returned, oldest first.
    """

    def __init__(self, context: SchedulerContext, manager: WatchedKVCacheManager) -> None:
        super().__init__(PlanLimits.of(context), self._row_of)
        self.in_flight: deque[SentStep] = deque()
        self._context = context
        self._manager = manager
        self._live: Mapping[str, Request] = {}
        self._preempted: set[str] = set()  # the workers know of it, and not of their return

    def read_plan(self, plan: SchedulerOutput, live: Mapping[str, Request]) -> None:
        """Check a plan of a scheduler whose unfinished requests are `live`, and remember what it says.

        Raises:
            BrokenRule: it does not fit what was sent before, the requests' own counts, or the limits.
        """
        self._live = live
        self.read(plan)
        for row in self.known.values():
            self._check_cursor(plan, row)
        if not plan.is_empty:
            pieces = {self.known[request_id]: n for request_id, n in plan.num_scheduled_tokens.items()}
            sampled = frozenset(row for row in pieces if row.num_scheduled >= row.request.num_tokens)
            self.in_flight.append(SentStep(plan, pieces, sampled))

    def settle(self, plan: SchedulerOutput) -> SentStep:
        """The oldest step has returned, so what it computed is written."""
        if not self.in_flight or self.in_flight[0].plan.step != plan.step:
            steps = [sent.plan.step for sent in self.in_flight]
            raise BrokenRule("scheduler", "each_request_once", f"step {plan.step} returns, and in flight are {steps}")
        sent = self.in_flight.popleft()
        written = self._manager.written
        for row, num_tokens in sent.pieces.items():
            if not row.is_preempted and written is not None and row.request in written:
                written[row.request] += num_tokens
        return sent

    def _forget_gone(self, plan: SchedulerOutput) -> None:
        """Ids that it names as gone are gone, and no others."""
        rule, live = "workers_hear_of_the_gone", self._live
        ended = {request_id for request_id, row in self.known.items() if live.get(request_id) is not row.request}
        lost = {request_id for request_id, row in self.known.items() if row.is_preempted} | ended
        if wrong := sorted({*plan.preempted_ids} - lost):
            broken(rule, plan, f"preempted_ids names {wrong}, which no worker knows, or which hold their blocks")
        if wrong := sorted({*plan.finished_ids} - ended - self._preempted):
            broken(rule, plan, f"finished_ids names {wrong}, which no worker knows, or which have not ended")
        if untold := sorted(lost.difference(plan.preempted_ids, plan.finished_ids)):
            broken(rule, plan, f"{untold} ended or lost their blocks, and the workers are not told")
        super()._forget_gone(plan)
        self._preempted.update(plan.preempted_ids)
        self._preempted.difference_update(plan.finished_ids)
        self._preempted.intersection_update(live)

    def _meet(self, plan: SchedulerOutput, new: NewRequestData) -> None:
        request = self._live.get(new.request_id)
        if request is None:
            broken("each_request_once", plan, f"{new.request_id!r} is new in it, and no such request is live")
        right = {
            "token_ids": request.token_ids,
            "num_prompt_tokens": request.num_prompt_tokens,
            "params": request.params,
            "cache_salt": request.cache_salt,
            "adapter": request.adapter,
            "resumed": request.num_preemptions > 0,
        }
        if new.request_id not in self.known:
            for name, value in right.items():
                if (told := getattr(new, name)) != value:
                    broken("workers_are_told_what_is", plan, f"{new.request_id!r} has {name} = {told}, not {value}")
        super()._meet(plan, new)
        if request.num_late_tokens:
            broken("late_tokens_are_kept", plan, f"{request!r} is resumed before its token in flight has come back")
        written = (self._manager.written or {}).get(request, 0)
        if new.num_computed_tokens != written:
            broken(
                "spans_are_contiguous",
                plan,
                f"{new.request_id!r} begins at token {new.num_computed_tokens}; its cached prefix ends at {written}",
            )
        self._preempted.discard(new.request_id)

    def _row_of(self, plan: SchedulerOutput, new: NewRequestData) -> WatchedRow:
        request = self._live[new.request_id]
        blocks = tuple(list(group) for group in new.block_ids)
        return WatchedRow(new.request_id, blocks, new.num_computed_tokens, request, request.num_preemptions)

    def _schedule(self, plan: SchedulerOutput, known: WatchedRow, num_tokens: int) -> None:
        request, start = known.request, known.num_scheduled
        end = start + num_tokens
        name = f"{request.request_id!r} is to compute its tokens {start} to {end}"
        if end > request.num_tokens and (num_tokens > 1 or not self._context.executor.feeds_tokens):
            broken("only_known_tokens_are_scheduled", plan, f"{name}, and {request.num_tokens} are known")
        if end <= self._limits.max_model_len:
            for group, held in zip(known.blocks, self._manager.get_block_ids(request), strict=True):
                if group != list(held):
                    broken("workers_are_told_what_is", plan, f"{name} in blocks {group}, and it holds {held}")
        super()._schedule(plan, known, num_tokens)
        if end < request.num_tokens and not self._context.enable_chunked_prefill:
            broken("prompts_stay_whole", plan, f"{name} of {request.num_tokens}, without chunked prefill")

    def _check_cursor(self, plan: SchedulerOutput, row: WatchedRow) -> None:
        request = row.request
        if request.num_scheduled_tokens != row.num_scheduled:
            broken(
                "spans_are_contiguous",
                plan,
                f"num_scheduled_tokens of {request.request_id!r} is {request.num_scheduled_tokens}; "
                f"{row.num_scheduled} of its tokens are scheduled",
            )
