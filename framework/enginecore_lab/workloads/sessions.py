"""Conversations: the prompt of each turn is all that was said before, and something new."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from pydantic import Field

from enginecore_lab.choices import LengthsChoice
from enginecore_lab.tables import Table
from enginecore_lab.workload import WorkloadRequest
from enginecore_lab.workloads.arrivals import ConstantThinkTime, ThinkTime
from enginecore_lab.workloads.prefixes import ContentIds


class Turn(NamedTuple):
    """Lengths that one turn adds.

    Attributes:
        num_new_tokens: Tokens of the prompt, behind what was said before.
        num_output_tokens: Tokens of the answer.
        think_time: Seconds from the end of the turn before.
    """

    num_new_tokens: int
    num_output_tokens: int
    think_time: float


class SessionSettings(Table):
    """Conversations of several turns, which arrive by themselves while their turns wait for one another.

    Attributes:
        turns: How many a conversation has.
        think_time: From an answer's end to the next turn.
        max_context: A conversation ends before a turn with which prompt and answer would be longer; None: never.
        share_outputs: Simulated engines keep what they generated, so that the next turn finds it in their cache, as
            real ones do. False: only prompts are kept, as where a template changes what is sent back.
    """

    turns: LengthsChoice = Field(default={"kind": "geometric", "mean": 3.0}, validate_default=True)
    think_time: ThinkTime = ConstantThinkTime(seconds=0.0)
    max_context: int | None = Field(default=None, ge=2)
    share_outputs: bool = True

    def draw_turns(
        self, rng: np.random.Generator, new: Iterator[int], outputs: Iterator[int], start: int, most: int
    ) -> list[Turn]:
        """The turns of one conversation: at least one, at most `most`.

        Args:
            rng: For their number and the think times.
            new: Lengths of what they add.
            outputs: Lengths of answers.
            start: Tokens of the prefix that it begins with.
            most: Turns at most.
        """
        (count,) = self.turns.built.draw(rng, 1).tolist()
        turns: list[Turn] = []
        context = start
        for think_time in self.think_time.draw(rng, count).tolist()[:most]:
            turn = Turn(next(new), next(outputs), think_time)
            context += turn.num_new_tokens + turn.num_output_tokens
            if turns and self.max_context is not None and context > self.max_context:
                break
            turns.append(turn)
        return turns


def conversation(
    name: str,
    arrival: float,
    turns: Sequence[Turn],
    block_size: int,
    ids: ContentIds,
    *,
    prefix: Sequence[int] = (),
    share_outputs: bool = True,
) -> Iterable[WorkloadRequest]:
    """The requests of one conversation.

    Args:
        name: Name of the session; its turns add their number.
        arrival: When its first turn comes.
        turns: At least one.
        block_size: Tokens per id.
        ids: Gives new ones.
        prefix: Blocks that it begins with, all full.
        share_outputs: As in `SessionSettings`.
    """
    blocks = list(prefix)
    context = len(blocks) * block_size
    for number, turn in enumerate(turns):
        num_prompt = context + turn.num_new_tokens
        context = num_prompt + turn.num_output_tokens
        blocks += ids.take(-(-context // block_size) - len(blocks))
        told = context if share_outputs else num_prompt
        yield WorkloadRequest(
            request_id=f"{name}/{number}",
            arrival=0.0 if number else arrival,
            num_prompt_tokens=num_prompt,
            num_output_tokens=turn.num_output_tokens,
            hash_ids=tuple(blocks[: -(-told // block_size)]),
            session=name,
            turn=number,
            after=f"{name}/{number - 1}" if number else None,
            delay=turn.think_time if number else 0.0,
        )
