"""Verification of plans against `SchedulerOutput`, and of slots against their prefixes."""

from array import array
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import chain

from enginecore.errors import InvariantError
from enginecore.messages import NewRequestData, RequestDelta, SchedulerOutput
from enginecore_conformance.oracle.memory import SlotMemory
from enginecore_conformance.oracle.model import extend_digests
from enginecore_conformance.oracle.worker import Row


@dataclass(frozen=True, slots=True)
class Limits:
    """What no plan may exceed.

    Attributes:
        max_num_seqs: Requests that hold blocks.
        max_num_batched_tokens: Tokens in a step.
        max_model_len: Tokens of a request.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int


def _require(holds: object, message: str) -> None:
    if not holds:
        raise InvariantError(message)


def _repeated(ids: Iterable[object]) -> list[object]:
    return [item for item, count in Counter(ids).items() if count > 1]


class PlanVerifier:
    """Looks at a worker's rows and slots before and after each step."""

    def __init__(self, rows: dict[str, Row], memory: SlotMemory, limits: Limits) -> None:
        self._rows = rows
        self._memory = memory
        self._limits = limits
        self._digests: dict[str, array[int]] = {}
        self._last_step = -1
        self._written_in: dict[int, int] = {}  # the last step that wrote to a block

    def check_plan(self, plan: SchedulerOutput, last_returned: int) -> None:
        """Before the plan is applied. `last_returned` is the step that had come back when it was
        submitted.

        Raises:
            InvariantError: names step, request and what does not hold.
        """
        try:
            self._check_envelope(plan)
            self._check_ids(plan)
            gone = {*plan.finished_ids, *plan.preempted_ids}
            for request_id in gone:
                self._digests.pop(request_id, None)
            self._check_tables(plan, gone)
            self._check_hits(plan, last_returned)
            self._check_spans(plan, gone)
        except InvariantError as error:
            raise InvariantError(f"step {plan.step}: {error}") from None
        self._last_step = plan.step

    def check_step(self, plan: SchedulerOutput) -> None:
        """After a step: what its requests read is their own prefix.

        Raises:
            InvariantError: names step, request, position and block.
        """
        for request_id, num_tokens in plan.num_scheduled_tokens.items():
            row = self._rows[request_id]
            first = (row.num_computed_tokens - num_tokens) // self._memory.block_size
            last = (row.num_computed_tokens - 1) // self._memory.block_size
            self._written_in.update(dict.fromkeys(row.block_ids[first : last + 1], plan.step))
            self._check_slots(plan.step, request_id, row)

    def _check_slots(self, step: int, request_id: str, row: Row) -> None:
        digests = self._digests.setdefault(request_id, array("q"))
        known = row.token_ids[len(digests) : row.num_computed_tokens]
        digests.extend(extend_digests(digests[-1] if digests else row.root, known))
        slots = self._memory.read(row.block_ids, row.num_computed_tokens)
        if slots.tobytes() != digests.tobytes():  # much faster than comparing views
            raise InvariantError(f"step {step}: {self._describe_difference(request_id, row, slots, digests)}")

    def _describe_difference(self, request_id: str, row: Row, slots: memoryview, digests: "array[int]") -> str:
        pairs = enumerate(zip(slots.cast("q"), digests, strict=True))
        position = next(position for position, (found, right) in pairs if found != right)
        block = row.block_ids[position // self._memory.block_size]
        return (
            f"request {request_id!r}: the slot of position {position}, in block {block}, does not hold the KV of its "
            "own prefix: a wrong or stale block, or another salt or adapter"
        )

    def _check_envelope(self, plan: SchedulerOutput) -> None:
        limits, scheduled = self._limits, plan.num_scheduled_tokens
        _require(plan.step > self._last_step, f"comes after step {self._last_step}; steps must count up")
        _require(not plan.is_empty, "an empty plan must not be executed")
        for request_id, num_tokens in scheduled.items():
            _require(num_tokens >= 1, f"request {request_id!r}: {num_tokens} tokens scheduled, must be at least 1")
        _require(
            plan.total_num_scheduled_tokens <= limits.max_num_batched_tokens,
            f"{plan.total_num_scheduled_tokens} tokens scheduled, above max_num_batched_tokens = "
            f"{limits.max_num_batched_tokens}",
        )

    def _check_ids(self, plan: SchedulerOutput) -> None:
        new = [data.request_id for data in plan.new_requests]
        changed = [delta.request_id for delta in plan.deltas]
        for field, ids in (("finished_ids", plan.finished_ids), ("preempted_ids", plan.preempted_ids),
                           ("new_requests", new), ("deltas", changed)):  # fmt: skip
            _require(not _repeated(ids), f"{field} names {_repeated(ids)} twice")
        for request_id in plan.preempted_ids:
            _require(request_id in self._rows, f"request {request_id!r} is preempted, but the worker does not know it")
        known = self._rows.keys() - {*plan.finished_ids, *plan.preempted_ids}
        for request_id in new:
            _require(request_id not in known, f"request {request_id!r} is new, but the worker knows it already")
        for request_id in changed:
            _require(request_id in known, f"request {request_id!r} has a delta, but the worker does not know it")
        seats = known.union(new)
        for request_id in plan.num_scheduled_tokens:
            _require(request_id in seats, f"request {request_id!r} is scheduled, but the worker does not know it")
        _require(
            len(seats) <= self._limits.max_num_seqs,
            f"{len(seats)} requests hold blocks, above max_num_seqs = {self._limits.max_num_seqs}",
        )

    def _check_tables(self, plan: SchedulerOutput, gone: Collection[str]) -> None:
        if not (plan.new_requests or plan.deltas):
            return
        holders = Counter(chain.from_iterable(row.block_ids for i, row in self._rows.items() if i not in gone))
        for new in plan.new_requests:
            holders.update(new.block_ids[0])
        for delta in plan.deltas:
            holders.update(delta.new_block_ids[0])
        for new in plan.new_requests:
            self._check_new(new)
            shared = new.num_computed_tokens // self._memory.block_size
            self._check_fresh(new.request_id, new.block_ids[0][shared:], holders)
        for delta in plan.deltas:
            self._check_delta(delta)
            self._check_fresh(delta.request_id, delta.new_block_ids[0], holders)

    def _check_fresh(self, request_id: str, blocks: list[int], holders: Counter[int]) -> None:
        for block in blocks:
            _require(
                0 <= block < self._memory.num_blocks,
                f"request {request_id!r}: block {block} is outside the pool of {self._memory.num_blocks}",
            )
            _require(
                holders[block] == 1,
                f"request {request_id!r}: block {block} is given to it to write to, but is held {holders[block]} times",
            )

    def _check_new(self, new: NewRequestData) -> None:
        known, computed = len(new.token_ids), new.num_computed_tokens
        name = f"request {new.request_id!r}"
        _require(len(new.block_ids) == 1, f"{name}: {len(new.block_ids)} block tables; there is one KV cache group")
        _require(0 <= computed < known, f"{name}: {computed} of {known} tokens are computed; the last never is")
        _require(
            0 < new.num_prompt_tokens <= known, f"{name}: {new.num_prompt_tokens} of {known} tokens are its prompt"
        )
        hits = new.block_ids[0][: -(-computed // self._memory.block_size)]
        outside = [block for block in hits if not 0 <= block < self._memory.num_blocks]
        _require(not outside, f"{name}: blocks {outside} are outside the pool of {self._memory.num_blocks}")

    def _check_hits(self, plan: SchedulerOutput, last_returned: int) -> None:
        for new in plan.new_requests:
            for block in new.block_ids[0][: new.num_computed_tokens // self._memory.block_size]:
                written_in = self._written_in.get(block, -1)
                _require(
                    written_in <= last_returned,
                    f"request {new.request_id!r}: its prefix is in block {block}, which step {written_in} writes; that "
                    "step had not returned when this one was submitted",
                )

    def _check_delta(self, delta: RequestDelta) -> None:
        computed = self._rows[delta.request_id].num_computed_tokens
        _require(
            delta.num_computed_tokens == computed,
            f"request {delta.request_id!r}: num_computed_tokens = {delta.num_computed_tokens} in its delta, but the "
            f"worker has computed {computed}",
        )

    def _check_spans(self, plan: SchedulerOutput, gone: Collection[str]) -> None:
        rows = {i: (len(row.block_ids), row.num_computed_tokens) for i, row in self._rows.items() if i not in gone}
        rows.update({new.request_id: (len(new.block_ids[0]), new.num_computed_tokens) for new in plan.new_requests})
        added = {delta.request_id: len(delta.new_block_ids[0]) for delta in plan.deltas}
        for request_id, num_tokens in plan.num_scheduled_tokens.items():
            num_blocks, computed = rows[request_id]
            end = computed + num_tokens
            room = (num_blocks + added.get(request_id, 0)) * self._memory.block_size
            _require(end <= room, f"request {request_id!r}: {end} tokens, but its blocks hold {room}")
            _require(
                end <= self._limits.max_model_len,
                f"request {request_id!r}: {end} tokens, above max_model_len = {self._limits.max_model_len}",
            )
