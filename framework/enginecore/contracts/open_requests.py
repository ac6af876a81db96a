"""OpenRequests: requests that are owed an output, and whether each output is due."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from enginecore.contracts.broken import BrokenRule
from enginecore.interfaces import Outputs
from enginecore.messages import EngineCoreOutput, FinishReason, ModelRunnerOutput
from enginecore.request import Request


@dataclass(eq=False, slots=True)
class OpenRequest:
    """A request from its acceptance to its terminal output.

    Attributes:
        request: The scheduler's.
        impossible: Whether it can never run.
        has_run: Whether a plan has named it.
        num_cached_tokens: What its first admission found in the cache, by the plan that introduced it.
        has_spoken: Whether its client has got a token.
        ending: The reason and the error by which the engine ended it; its terminal output is due.
    """

    request: Request
    impossible: bool
    has_run: bool = False
    num_cached_tokens: int = 0
    has_spoken: bool = False
    ending: tuple[FinishReason, str | None] | None = None


class OpenRequests:
    """Requests whose clients wait for an output.

    Attributes:
        live: By request id; some have ended, and their terminal output is due.
    """

    def __init__(self, capacity: int) -> None:
        """`capacity`: tokens that the KV cache holds."""
        self.live: dict[str, OpenRequest] = {}
        self._refused: list[OpenRequest] = []  # their ids were taken again since
        self._capacity = capacity

    def add_request(self, request: Request) -> None:
        """A request was accepted."""
        if before := self.live.pop(request.request_id, None):
            self._refused.append(before)
        self.live[request.request_id] = OpenRequest(request, impossible=request.num_prompt_tokens > self._capacity)

    def __iter__(self) -> Iterator[OpenRequest]:
        yield from self.live.values()
        yield from self._refused

    def take_outputs(self, outputs: Outputs, sampled: dict[Request, list[int]], output: ModelRunnerOutput) -> None:
        """Check outputs that the scheduler gave.

        Args:
            outputs: Outputs of the step.
            sampled: Tokens that the step gave to requests that are live.
            output: Output of the workers for that step.

        Raises:
            BrokenRule: an output is not due, or one that is due is missing.
        """
        for client_index, due in outputs.items():
            for out in due:
                entry = self._find(out)
                if entry is None:
                    _broken("one_last_word", f"{out} for a request that has ended, was cancelled or never was")
                if entry.request.client_index != client_index:
                    _broken(
                        "one_last_word", f"client {client_index} gets {out}, of client {entry.request.client_index}"
                    )
                self._check_tokens(entry, out, sampled)
                if out.finish_reason is not None:
                    self._check_terminal(entry, out, output)
                    self._forget(entry)
        for entry in self:
            if entry.ending or entry.impossible:
                rule = "one_last_word" if entry.ending else "impossible_requests_are_refused"
                _broken(rule, f"{entry.request!r} has ended or can never run, and its client is not told")

    def _check_tokens(self, entry: OpenRequest, out: EngineCoreOutput, sampled: dict[Request, list[int]]) -> None:
        given = sampled.pop(entry.request, [])
        if out.new_token_ids != given[: len(out.new_token_ids)]:
            _broken("policy_does_not_change_tokens", f"{out}; the step gave it {given}")
        if not out.new_token_ids and out.finish_reason is None:
            _broken("one_last_word", f"{out} says nothing")
        if not out.new_token_ids:
            return
        right = {0} if entry.has_spoken else {entry.num_cached_tokens}
        if out.num_cached_tokens not in right:
            _broken(
                "cached_tokens_are_told_once", f"{out} says num_cached_tokens = {out.num_cached_tokens}, not {right}"
            )
        entry.has_spoken = True

    def _check_terminal(self, entry: OpenRequest, out: EngineCoreOutput, output: ModelRunnerOutput) -> None:
        request, reason = entry.request, out.finish_reason
        if entry.ending is not None and (reason, out.error) != entry.ending:
            _broken("one_last_word", f"{out}; the engine ended it with {entry.ending}")
        if reason is FinishReason.ERROR and not out.error:
            _broken("impossible_requests_are_refused", f"{out} does not say what is wrong")
        if reason is FinishReason.ERROR and entry.ending is None and entry.has_run:
            at_fault = request.request_id in output.errors or len(rows_of(output, request.request_id)) != 1
            outgrown = request.num_tokens >= self._capacity
            if not at_fault and not outgrown:
                _broken("faults_stay_with_their_request", f"{out}; step {output.step} gave no error of it")
        if reason in (FinishReason.STOP, FinishReason.LENGTH):
            right = request.finish_reason, request.stop_reason
            if (reason, out.stop_reason) != right:
                _broken("one_last_word", f"{out}; Request.append says {right}")

    def _find(self, out: EngineCoreOutput) -> OpenRequest | None:
        owed = (entry for entry in self._refused if entry.request.request_id == out.request_id)
        return next(owed, self.live.get(out.request_id))

    def _forget(self, entry: OpenRequest) -> None:
        if entry in self._refused:
            self._refused.remove(entry)
        else:
            del self.live[entry.request.request_id]


def rows_of(output: ModelRunnerOutput, request_id: str) -> list[int]:
    """Tokens that a step gave to a request."""
    rows = zip(output.request_ids, output.sampled_token_ids, strict=False)
    return [token for row_id, tokens in rows if row_id == request_id for token in tokens]


def _broken(rule: str, seen: str) -> NoReturn:
    raise BrokenRule("scheduler", rule, seen)
