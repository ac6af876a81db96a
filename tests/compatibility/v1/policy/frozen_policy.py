"""Shortest prompt first, with ageing."""

from typing import Annotated

from pydantic import Field

from enginecore.plugin import Component, hookimpl
from enginecore.scheduling import Rank, RequestView, SchedulerView, SchedulingPolicy, policy_component


class FrozenPolicy(SchedulingPolicy):
    """Short prompts go first; a long one gains on them while it waits."""

    def __init__(self, tokens_per_second: Annotated[float, Field(ge=0)] = 100.0) -> None:
        self.tokens_per_second = tokens_per_second

    def rank(self, request: RequestView, scheduler: SchedulerView) -> Rank:
        return request.num_prompt_tokens + request.arrival * self.tokens_per_second


@hookimpl
def enginecore_components() -> list[Component]:
    return [policy_component("frozen-policy", FrozenPolicy)]
