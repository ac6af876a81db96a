from typing import Any

import pytest

from enginecore.messages import EngineCoreRequest, FinishReason
from enginecore.request import Request
from enginecore.sampling import SamplingParams


def make(prompt: int = 4, *, max_model_len: int = 100, eos: tuple[int, ...] = (2,), **params: Any) -> Request:
    sampling = SamplingParams(**{"max_tokens": 10, **params})
    wire = EngineCoreRequest(request_id="r", prompt_token_ids=list(range(10, 10 + prompt)), params=sampling)
    return Request(wire, sampling, arrival_number=0, arrival_time=0.0, max_model_len=max_model_len, eos_token_ids=eos)


def test_tokens_are_accepted_up_to_the_length() -> None:
    request = make(max_tokens=3)
    assert request.append([7]) == [7]
    assert request.finish_reason is None
    assert request.append([8, 9, 11, 12]) == [8, 9]
    assert request.finish_reason is FinishReason.LENGTH
    assert request.output_token_ids == [7, 8, 9]


def test_eos_ends_without_a_stop_reason_and_a_stop_token_with_its_id() -> None:
    request = make()
    assert request.append([2]) == [2]
    assert (request.finish_reason, request.stop_reason) == (FinishReason.STOP, None)
    request = make(stop_token_ids=(5,))
    assert request.append([6, 5, 7]) == [6, 5]
    assert (request.finish_reason, request.stop_reason) == (FinishReason.STOP, 5)


def test_ignore_eos_leaves_stop_token_ids_alone() -> None:
    request = make(ignore_eos=True, stop_token_ids=(5,))
    assert request.append([2]) == [2]
    assert request.finish_reason is None
    request.append([5])
    assert request.finish_reason is FinishReason.STOP


def test_a_token_that_is_both_eos_and_stop_token_stops_even_if_eos_is_ignored() -> None:
    request = make(ignore_eos=True, stop_token_ids=(2,))
    request.append([2])
    assert (request.finish_reason, request.stop_reason) == (FinishReason.STOP, 2)


def test_min_tokens_counts_output_tokens_and_a_later_stop_counts() -> None:
    request = make(prompt=8, min_tokens=3)
    request.append([2])
    request.append([2])
    assert request.finish_reason is None
    request.append([2])
    assert request.finish_reason is None, "the third token is within the first three"
    request.append([2])
    assert request.finish_reason is FinishReason.STOP


def test_a_stop_token_in_the_last_place_is_a_stop() -> None:
    request = make(max_tokens=2)
    request.append([9])
    request.append([2])
    assert request.finish_reason is FinishReason.STOP


def test_without_max_tokens_the_context_is_filled() -> None:
    request = make(prompt=4, max_tokens=None, max_model_len=6)
    request.append([7])
    assert request.finish_reason is None
    request.append([7])
    assert request.finish_reason is FinishReason.LENGTH


def test_max_tokens_beyond_the_context_is_clamped_to_it() -> None:
    request = make(prompt=4, max_tokens=10**6, max_model_len=5)
    assert request.append([7]) == [7]
    assert request.finish_reason is FinishReason.LENGTH


def test_max_tokens_zero_accepts_nothing() -> None:
    request = make(max_tokens=0)
    assert request.append([7]) == []
    assert request.finish_reason is FinishReason.LENGTH
    assert request.num_output_tokens == 0


@pytest.mark.parametrize(
    ("scheduled", "late"),
    [(0, 0), (3, 0), (4, 1), (5, 2), (7, 4)],
    ids=["waiting", "mid-prompt", "prompt done", "one decode ahead", "three ahead"],
)
def test_preemption_remembers_the_tokens_that_are_being_sampled(scheduled: int, late: int) -> None:
    request = make(prompt=4)
    request.num_scheduled_tokens = scheduled
    assert request.num_sampling_tokens == late
    request.preempt()
    assert request.num_late_tokens == late
    assert (request.num_scheduled_tokens, request.num_computed_tokens, request.num_preemptions) == (0, 0, 1)


def test_a_decode_at_rest_has_nothing_in_flight() -> None:
    request = make(prompt=4)
    request.num_scheduled_tokens = request.num_computed_tokens = 4
    request.append([7])
    assert (request.num_in_flight_tokens, request.num_sampling_tokens) == (0, 0)
    request.num_scheduled_tokens += 1
    assert (request.num_in_flight_tokens, request.num_sampling_tokens) == (1, 1)
