"""Checks of answers to plans, and comparison of the tokens of two runs."""

from collections.abc import Sequence

from enginecore.messages import ModelRunnerOutput, PositionLogprobs
from enginecore_conformance.checks import Violation
from enginecore_conformance.executors.planner import Planned

ROUNDING = 1e-3
"""Log-probabilities of the same context differ by less in float32, whatever the batch; by more, if
a slot is wrong.
"""


def check_answer(planned: Planned, output: object, vocab_size: int) -> None:
    """Look at an answer to a plan without faults.

    Raises:
        Violation: it is not one.
    """
    plan = planned.plan
    if not isinstance(output, ModelRunnerOutput):
        raise Violation(f"step {plan.step} gave {output!r:.200}", "a ModelRunnerOutput")
    if output.step != plan.step:
        raise Violation(f"step {plan.step} was answered by one of step {output.step}", "its own answer")
    if output.errors:
        raise Violation(f"step {plan.step} gave errors: {output.errors}", "none: nothing is wrong with its requests")
    check_rows(planned, output, vocab_size)


def check_rows(planned: Planned, output: ModelRunnerOutput, vocab_size: int) -> None:
    """Each request that is sampled has one row of one token.

    Raises:
        Violation: a row is missing, or one too many.
    """
    ids, rows = output.request_ids, output.sampled_token_ids
    if len(ids) != len(rows) or len(set(ids)) != len(ids):
        raise Violation(f"step {output.step} names {ids} and has {len(rows)} rows", "one row for each, each named once")
    due = {request.request_id for request in planned.sampled}
    for request_id, row in zip(ids, rows, strict=True):
        if request_id in due:
            due.remove(request_id)
            if len(row) != 1 or not 0 <= row[0] < vocab_size:
                raise Violation(f"request {request_id!r} was given {row}", f"one token, below {vocab_size}")
        elif request_id not in planned.plan.num_scheduled_tokens:
            raise Violation(f"step {output.step} names {request_id!r}, which it did not schedule", "no such row")
        elif row:
            raise Violation(
                f"request {request_id!r} was given {row} although not all of its tokens were computed", "no token yet"
            )
    if due:
        raise Violation(
            f"step {output.step} gave nothing to {', '.join(sorted(due))}, whose last known token it computed",
            "a token for each",
        )


def expect_tokens(seen: Sequence[int], right: Sequence[int], what: str) -> None:
    """Tokens must be those of the same request alone; `what` says how it ran."""
    if list(seen) != list(right):
        pairs = enumerate(zip(seen, right, strict=False))
        at = next((at for at, (one, other) in pairs if one != other), min(len(seen), len(right)))
        raise Violation(f"{what}: token {at} differs: {list(seen)}", f"as the same request alone gives: {list(right)}")


def expect_logprobs(seen: Sequence[PositionLogprobs], right: Sequence[PositionLogprobs], what: str) -> None:
    """The likeliest tokens must be as likely as those of the request alone, but for rounding."""
    if len(seen) != len(right):
        raise Violation(f"{what}: {len(seen)} entries of logprobs", f"{len(right)}, as the same request alone gives")
    for at, (one, other) in enumerate(zip(seen, right, strict=True)):
        differences = [abs(a - b) for a, b in zip(one.logprobs, other.logprobs, strict=True)]
        if max(differences) > ROUNDING:
            raise Violation(
                f"{what}: the tokens are the same, the log-probabilities at token {at} are not: {one.logprobs}",
                f"as the same request alone gives, within {ROUNDING:g}: {other.logprobs}",
            )
