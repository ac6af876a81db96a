"""StepVerifier: each plan against the one judge of plans, and each slot that is read against its own prefix."""

from array import array

from enginecore.contracts import BrokenRule, KnownRequest, PlanJudge, PlanLimits
from enginecore.errors import InvariantError
from enginecore.messages import SchedulerOutput
from enginecore_conformance.oracle.memory import SlotMemory
from enginecore_conformance.oracle.model import extend_digests
from enginecore_conformance.oracle.worker import OracleRow


class StepVerifier:
    """Looks at a worker's plans before each step, and at its rows and slots after it."""

    def __init__(self, rows: dict[str, OracleRow], memory: SlotMemory, limits: PlanLimits) -> None:
        self._rows = rows
        self._memory = memory
        self._judge = PlanJudge(limits, KnownRequest.of)
        self._digests: dict[str, array[int]] = {}
        self._written_in: dict[int, int] = {}  # the last step that wrote to a block

    def check_plan(self, plan: SchedulerOutput, last_returned: int) -> None:
        """Before the plan is applied. `last_returned` is the step that had come back when it was submitted.

        Raises:
            BrokenRule: names rule, step, request and what does not hold.
        """
        if plan.is_empty:
            _broken("each_request_once", plan, "nothing is said: an empty plan must not be executed")
        self._judge.read(plan)
        for request_id in (*plan.finished_ids, *plan.preempted_ids):
            self._digests.pop(request_id, None)
        self._check_hits(plan, last_returned)

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

    def _check_slots(self, step: int, request_id: str, row: OracleRow) -> None:
        digests = self._digests.setdefault(request_id, array("q"))
        known = row.token_ids[len(digests) : row.num_computed_tokens]
        digests.extend(extend_digests(digests[-1] if digests else row.root, known))
        slots = self._memory.read(row.block_ids, row.num_computed_tokens)
        if slots.tobytes() != digests.tobytes():  # much faster than comparing views
            raise InvariantError(f"step {step}: {self._describe_difference(request_id, row, slots, digests)}")

    def _describe_difference(self, request_id: str, row: OracleRow, slots: memoryview, digests: "array[int]") -> str:
        pairs = enumerate(zip(slots.cast("q"), digests, strict=True))
        position = next(position for position, (found, right) in pairs if found != right)
        block = row.block_ids[position // self._memory.block_size]
        return (
            f"request {request_id!r}: the slot of position {position}, in block {block}, does not hold the KV of its "
            "own prefix: a wrong or stale block, or another salt or adapter"
        )

    def _check_hits(self, plan: SchedulerOutput, last_returned: int) -> None:
        for new in plan.new_requests:
            for block in new.block_ids[0][: new.num_computed_tokens // self._memory.block_size]:
                written_in = self._written_in.get(block, -1)
                if written_in > last_returned:
                    _broken(
                        "only_what_is_written_is_published",
                        plan,
                        f"request {new.request_id!r}: its prefix is in block {block}, which step {written_in} writes; "
                        "that step had not returned when this one was submitted",
                    )


def _broken(rule: str, plan: SchedulerOutput, seen: str) -> None:
    raise BrokenRule("scheduler", rule, f"in step {plan.step}, {seen}")
