"""PlanJudge: whether each plan fits the limits, the pool, and the plans before it. The one judge of plans."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Generic, NoReturn, TypeVar

from enginecore.contracts.broken import BrokenRule
from enginecore.messages import NewRequestData, RequestDelta, SchedulerOutput
from enginecore.plugin import SchedulerContext


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits:
    """Limits that no plan may exceed.

    Attributes:
        max_num_seqs: Requests that hold blocks, and requests in a step.
        max_num_batched_tokens: Tokens in a step.
        max_model_len: Tokens of a request.
        num_blocks: Blocks in the pool.
        block_size: Tokens per block.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    num_blocks: int
    block_size: int

    @classmethod
    def of(cls, context: SchedulerContext) -> "PlanLimits":
        """The limits that a scheduler was given, and the pool of its KV cache manager."""
        return cls(
            max_num_seqs=context.max_num_seqs,
            max_num_batched_tokens=context.max_num_batched_tokens,
            max_model_len=context.max_model_len,
            num_blocks=context.kv_cache_manager.num_blocks,
            block_size=context.kv_cache_manager.block_size,
        )


@dataclass(eq=False, slots=True)
class KnownRequest:
    """A request that workers know, from the plan that names it as new to the one that names it as gone.

    Attributes:
        request_id: Id of the request.
        blocks: Block table as workers got it, per KV cache group.
        num_scheduled: Tokens that are computed or scheduled.
    """

    request_id: str
    blocks: tuple[list[int], ...]
    num_scheduled: int

    @classmethod
    def of(cls, plan: SchedulerOutput, new: NewRequestData) -> "KnownRequest":
        """A request as a plan introduces it."""
        return cls(new.request_id, tuple(list(group) for group in new.block_ids), new.num_computed_tokens)


K = TypeVar("K", bound=KnownRequest)


class PlanJudge(Generic[K]):
    """Reads plans as a worker does, and knows nothing else. Subclasses add what they know besides.

    Args:
        limits: Limits that no plan may exceed.
        make: Makes the entry of a request that is new in a plan.

    Attributes:
        known: Requests that workers know, by id.
    """

    def __init__(self, limits: PlanLimits, make: Callable[[SchedulerOutput, NewRequestData], K]) -> None:
        self.known: dict[str, K] = {}
        self._limits = limits
        self._make = make
        self._holders: Counter[int] = Counter()  # by block
        self._last_step: int | None = None

    def read(self, plan: SchedulerOutput) -> None:
        """Check a plan, and remember what it says.

        Raises:
            BrokenRule: it does not fit; names the rule, the step and the request.
        """
        self._check_budget(plan)
        self._check_names(plan)
        self._forget_gone(plan)
        for new in plan.new_requests:
            self._meet(plan, new)
        for delta in plan.deltas:
            self._grow(plan, delta)
        self._check_seats(plan)
        for request_id, num_tokens in plan.num_scheduled_tokens.items():
            self._schedule(plan, self._find(plan, request_id, "is scheduled"), num_tokens)
        self._check_writers(plan)
        if not plan.is_empty:
            self._last_step = plan.step

    def _check_budget(self, plan: SchedulerOutput) -> None:
        """A step computes no more tokens, and for no more requests, than it may, and of each at least one."""
        total, counts = plan.total_num_scheduled_tokens, plan.num_scheduled_tokens
        for request_id, num_tokens in counts.items():
            if num_tokens < 1:
                broken(
                    "each_request_once",
                    plan,
                    f"request {request_id!r}: {num_tokens} tokens scheduled, must be at least 1",
                )
        if total > (most := self._limits.max_num_batched_tokens):
            broken("budget_is_kept", plan, f"{total} tokens scheduled, above max_num_batched_tokens = {most}")
        if len(counts) > (most := self._limits.max_num_seqs):
            broken("budget_is_kept", plan, f"{len(counts)} requests scheduled, above max_num_seqs = {most}")

    def _check_names(self, plan: SchedulerOutput) -> None:
        """Steps count up, and each list names a request once."""
        if self._last_step is not None and plan.step <= self._last_step and not plan.is_empty:
            broken("each_request_once", plan, f"it comes after step {self._last_step}; steps must count up")
        lists: Mapping[str, Iterable[str]] = {
            "finished_ids": plan.finished_ids,
            "preempted_ids": plan.preempted_ids,
            "new_requests": [new.request_id for new in plan.new_requests],
            "deltas": [delta.request_id for delta in plan.deltas],
        }
        for name, ids in lists.items():
            if twice := [request_id for request_id, times in Counter(ids).items() if times > 1]:
                broken("each_request_once", plan, f"{name} names {twice} twice")

    def _forget_gone(self, plan: SchedulerOutput) -> None:
        for request_id in plan.preempted_ids:
            if request_id not in self.known:
                broken(
                    "workers_hear_of_the_gone",
                    plan,
                    f"request {request_id!r} is preempted, but the worker does not know it",
                )
        for request_id in {*plan.finished_ids, *plan.preempted_ids}:
            if known := self.known.pop(request_id, None):
                self._holders.subtract(chain.from_iterable(known.blocks))

    def _meet(self, plan: SchedulerOutput, new: NewRequestData) -> None:
        name = f"request {new.request_id!r}"
        if new.request_id in self.known:
            broken("each_request_once", plan, f"{name} is new, but the worker knows it already")
        num_known, computed = len(new.token_ids), new.num_computed_tokens
        if not 0 <= computed < num_known:
            broken(
                "spans_are_contiguous",
                plan,
                f"{name}: {computed} of {num_known} tokens are computed; the last never is",
            )
        if not 0 < new.num_prompt_tokens <= num_known:
            broken(
                "workers_are_told_what_is",
                plan,
                f"{name}: {new.num_prompt_tokens} of {num_known} tokens are its prompt",
            )
        cached = -(-computed // self._limits.block_size)
        self._check_blocks(plan, new.request_id, (block for group in new.block_ids for block in group[:cached]))
        self._holders.update(chain.from_iterable(new.block_ids))
        self.known[new.request_id] = self._make(plan, new)

    def _grow(self, plan: SchedulerOutput, delta: RequestDelta) -> None:
        known = self._find(plan, delta.request_id, "has a delta")
        if delta.num_computed_tokens != known.num_scheduled:
            broken(
                "spans_are_contiguous",
                plan,
                f"request {delta.request_id!r}: num_computed_tokens = {delta.num_computed_tokens} in its delta, but "
                f"the worker has computed {known.num_scheduled}",
            )
        for held, added in zip(known.blocks, delta.new_block_ids, strict=True):
            held += added
            self._holders.update(added)

    def _schedule(self, plan: SchedulerOutput, known: K, num_tokens: int) -> None:
        """Check the tokens of one request, and count them."""
        known.num_scheduled = end = known.num_scheduled + num_tokens
        name = f"request {known.request_id!r}: {end} tokens"
        if end > self._limits.max_model_len:
            broken("tokens_have_slots", plan, f"{name}, above max_model_len = {self._limits.max_model_len}")
        for group in known.blocks:
            if end > (room := len(group) * self._limits.block_size):
                broken("tokens_have_slots", plan, f"{name}, but its blocks hold {room}")

    def _check_seats(self, plan: SchedulerOutput) -> None:
        if len(self.known) > (most := self._limits.max_num_seqs):
            broken("budget_is_kept", plan, f"{len(self.known)} requests hold blocks, above max_num_seqs = {most}")

    def _check_writers(self, plan: SchedulerOutput) -> None:
        """Blocks that are given to write to are in the pool, and are given to one request."""
        for new in plan.new_requests:
            shared = new.num_computed_tokens // self._limits.block_size
            self._check_fresh(plan, new.request_id, [block for group in new.block_ids for block in group[shared:]])
        for delta in plan.deltas:
            self._check_fresh(plan, delta.request_id, list(chain.from_iterable(delta.new_block_ids)))

    def _check_fresh(self, plan: SchedulerOutput, request_id: str, blocks: list[int]) -> None:
        self._check_blocks(plan, request_id, blocks)
        for block in blocks:
            if (times := self._holders[block]) != 1:
                broken(
                    "tokens_have_slots",
                    plan,
                    f"request {request_id!r}: block {block} is given to it to write to, but is held {times} times",
                )

    def _check_blocks(self, plan: SchedulerOutput, request_id: str, blocks: Iterable[int]) -> None:
        for block in blocks:
            if not 0 <= block < self._limits.num_blocks:
                broken(
                    "tokens_have_slots",
                    plan,
                    f"request {request_id!r}: block {block} is outside the pool of {self._limits.num_blocks}",
                )

    def _find(self, plan: SchedulerOutput, request_id: str, what: str) -> K:
        known = self.known.get(request_id)
        if known is None:
            broken("each_request_once", plan, f"request {request_id!r} {what}, but the worker does not know it")
        return known


def broken(rule: str, plan: SchedulerOutput, seen: str) -> NoReturn:
    """Raise that a plan breaks a rule of schedulers."""
    raise BrokenRule("scheduler", rule, f"in step {plan.step}, {seen}")
