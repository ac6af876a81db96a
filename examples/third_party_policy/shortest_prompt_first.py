"""Shortest prompt first, with ageing: a scheduler for enginecore."""

from typing import Annotated

from pydantic import Field

from enginecore.plugin import Component, hookimpl
from enginecore.scheduling import Rank, RequestView, SchedulerView, SchedulingPolicy, policy_component


class ShortestPromptFirst(SchedulingPolicy):
    """Short prompts go first; a long one gains on them while it waits.

    All waiting requests age alike, so their order depends on when they arrived and never has to be made anew.
    """

    def __init__(self, tokens_per_second: Annotated[float, Field(ge=0, strict=True)] = 100.0) -> None:
        """`tokens_per_second`: how many tokens shorter a prompt counts for each second that it has waited."""
        self.tokens_per_second = tokens_per_second

    def rank(self, request: RequestView, scheduler: SchedulerView) -> Rank:
        return request.num_prompt_tokens + request.arrival * self.tokens_per_second


COMPONENT = policy_component("shortest-prompt-first", ShortestPromptFirst)


@hookimpl
def enginecore_components() -> list[Component]:
    """What this package offers."""
    return [COMPONENT]
