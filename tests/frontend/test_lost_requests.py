"""A scheduler that loses requests is found out: nobody waits for ever."""

from typing import Any

import pytest

from enginecore import LLM, SamplingParams
from enginecore.errors import EngineDeadError
from enginecore.kinds import SCHEDULER
from enginecore.plugin import Component
from enginecore.scheduling import ContinuousBatchingScheduler, SchedulingPolicy


class Plain(SchedulingPolicy):
    def rank(self, request, scheduler):
        return request.arrival


class Deaf(ContinuousBatchingScheduler):
    """Takes a request and forgets it."""

    def add_request(self, request: Any) -> None:
        return None


class Mute(ContinuousBatchingScheduler):
    """Ends requests without telling."""

    def update_from_output(self, scheduled: Any, output: Any) -> Any:
        outputs = super().update_from_output(scheduled, output)
        return {client: [o for o in due if o.finish_reason is None] for client, due in outputs.items()}


class Done(ContinuousBatchingScheduler):
    """Says that it has nothing to do."""

    def has_requests(self) -> bool:
        return False


class Busy(ContinuousBatchingScheduler):
    """Says that it has something to do."""

    def add_request(self, request: Any) -> None:
        return None

    def has_requests(self) -> bool:
        return True


def start(scheduler: type[ContinuousBatchingScheduler]) -> LLM:
    component = Component(
        kind="scheduler",
        name="losing",
        factory=lambda settings, context: scheduler(Plain(), context),
        capabilities=frozenset(SCHEDULER.capabilities),
    )
    return LLM(components=[component], scheduler={"use": "losing"}, executor={"use": "oracle"})


PARAMS = SamplingParams(max_tokens=3, detokenize=False, temperature=0, ignore_eos=True)


@pytest.mark.parametrize("scheduler", [Deaf, Mute, Done])
def test_requests_that_will_never_be_heard_of_end_with_an_error_that_names_the_scheduler(scheduler):
    with start(scheduler) as llm:
        outputs = llm.generate([[1, 2], [3]], PARAMS, use_tqdm=False)
    assert [output.outputs[0].finish_reason for output in outputs] == ["error", "error"]
    assert all("scheduler 'losing' has lost it" in str(output.error) for output in outputs)


def test_a_scheduler_that_is_busy_with_nothing_is_no_progress():
    with start(Busy) as llm, pytest.raises(EngineDeadError, match="no progress: scheduler 'losing'"):
        llm.generate([[1, 2]], PARAMS, use_tqdm=False)


def test_a_step_that_gives_no_output_is_no_lost_request():
    with LLM(executor={"use": "oracle"}, max_num_batched_tokens=8) as llm:
        (output,) = llm.generate([[n % 200 for n in range(100)]], PARAMS, use_tqdm=False)
        assert llm.get_stats().step >= 13
    assert output.outputs[0].finish_reason == "length"
    assert output.error is None
