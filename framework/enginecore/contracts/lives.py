"""Requests from their acceptance to their last word, and what their clients are told."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from enginecore.contracts.broken import BrokenRule
from enginecore.interfaces import Outputs
from enginecore.messages import EngineCoreOutput, FinishReason, ModelRunnerOutput
from enginecore.request import Request


@dataclass(eq=False, slots=True)
class Life:
    """A request from its acceptance to its last word.

    Attributes:
        request: It.
        impossible: Whether it can never run.
        has_run: Whether workers have heard of it.
        num_cached_tokens: What its first admission found in the cache, as workers were told when they met it.
        has_spoken: Whether its client has got a token.
        ending: The reason and the error by which the engine ended it; its last word is due.
    """

    request: Request
    impossible: bool
    has_run: bool = False
    num_cached_tokens: int = 0
    has_spoken: bool = False
    ending: tuple[FinishReason, str | None] | None = None


class Lives:
    """Everybody to whom a word is due.

    Attributes:
        live: By request id; some have ended, and were not told yet.
    """

    def __init__(self, capacity: int) -> None:
        """`capacity`: tokens that the KV cache holds."""
        self.live: dict[str, Life] = {}
        self._refused: list[Life] = []  # whose id somebody else has by now
        self._capacity = capacity

    def add(self, request: Request) -> None:
        """It was accepted."""
        if before := self.live.pop(request.request_id, None):
            self._refused.append(before)
        self.live[request.request_id] = Life(request, impossible=request.num_prompt_tokens > self._capacity)

    def __iter__(self) -> Iterator[Life]:
        yield from self.live.values()
        yield from self._refused

    def take(self, outputs: Outputs, sampled: dict[Request, list[int]], output: ModelRunnerOutput) -> None:
        """Outputs were given.

        Args:
            outputs: They.
            sampled: What the step gave to requests that are live.
            output: Of that step.

        Raises:
            BrokenRule: somebody is told what is not due to them, or not told what is.
        """
        for client_index, due in outputs.items():
            for out in due:
                life = self._life_of(out)
                if life is None:
                    _broken("one_last_word", f"{out} for a request that has ended, was cancelled or never was")
                if life.request.client_index != client_index:
                    _broken("one_last_word", f"client {client_index} gets {out}, of client {life.request.client_index}")
                self._check_tokens(life, out, sampled)
                if out.finish_reason is not None:
                    self._check_last_word(life, out, output)
                    self._forget(life)
        for life in self:
            if life.ending or life.impossible:
                rule = "one_last_word" if life.ending else "impossible_requests_are_refused"
                _broken(rule, f"{life.request!r} has ended or can never run, and its client is not told")

    def _check_tokens(self, life: Life, out: EngineCoreOutput, sampled: dict[Request, list[int]]) -> None:
        given = sampled.pop(life.request, [])
        if out.new_token_ids != given[: len(out.new_token_ids)]:
            _broken("policy_does_not_change_tokens", f"{out}; the step gave it {given}")
        if not out.new_token_ids and out.finish_reason is None:
            _broken("one_last_word", f"{out} says nothing")
        if not out.new_token_ids:
            return
        right = {0} if life.has_spoken else {life.num_cached_tokens}
        if out.num_cached_tokens not in right:
            _broken(
                "cached_tokens_are_told_once", f"{out} says num_cached_tokens = {out.num_cached_tokens}, not {right}"
            )
        life.has_spoken = True

    def _check_last_word(self, life: Life, out: EngineCoreOutput, output: ModelRunnerOutput) -> None:
        request, reason = life.request, out.finish_reason
        if life.ending is not None and (reason, out.error) != life.ending:
            _broken("one_last_word", f"{out}; the engine ended it with {life.ending}")
        if reason is FinishReason.ERROR and not out.error:
            _broken("impossible_requests_are_refused", f"{out} does not say what is wrong")
        if reason is FinishReason.ERROR and life.ending is None and life.has_run:
            at_fault = request.request_id in output.errors or len(rows_of(output, request.request_id)) != 1
            outgrown = request.num_tokens >= self._capacity
            if not at_fault and not outgrown:
                _broken("faults_stay_with_their_request", f"{out}; step {output.step} gave no error of it")
        if reason in (FinishReason.STOP, FinishReason.LENGTH):
            right = request.finish_reason, request.stop_reason
            if (reason, out.stop_reason) != right:
                _broken("one_last_word", f"{out}; Request.append says {right}")

    def _life_of(self, out: EngineCoreOutput) -> Life | None:
        owed = (life for life in self._refused if life.request.request_id == out.request_id)
        return next(owed, self.live.get(out.request_id))

    def _forget(self, life: Life) -> None:
        if life in self._refused:
            self._refused.remove(life)
        else:
            del self.live[life.request.request_id]


def rows_of(output: ModelRunnerOutput, request_id: str) -> list[int]:
    """Tokens that a step gave to a request."""
    rows = zip(output.request_ids, output.sampled_token_ids, strict=False)
    return [token for row_id, tokens in rows if row_id == request_id for token in tokens]


def _broken(rule: str, seen: str) -> NoReturn:
    raise BrokenRule("scheduler", rule, seen)
