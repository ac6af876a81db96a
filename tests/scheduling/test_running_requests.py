"""The queue of running requests."""

# pyright: reportArgumentType=false

import pytest

from enginecore.request import Request
from enginecore.scheduling.queues import RunningRequests
from enginecore.scheduling.state import Phase, SchedulingState
from tests.scheduling.harnesses import make_request


def make_state(number):
    request = make_request(f"r{number}", 4)
    state = SchedulingState(Request(request, request.params, arrival_number=number, arrival_time=0.0, max_model_len=64))
    state.set_rank(number)
    return state


def start(running, state):
    running.add(state)
    state.phase = Phase.PREFILL
    running.start_decode(state)
    state.phase = Phase.DECODE


@pytest.fixture
def running():
    return RunningRequests(max_num_seqs=4)


def test_a_request_that_leaves_decode_and_returns_is_served_once(running):
    first, second = make_state(1), make_state(2)
    start(running, first)
    start(running, second)
    running.remove(first)
    first.phase = Phase.WAITING
    assert running.num_decodes == 1
    start(running, first)
    assert running.decoding == [second, first]
    assert running.num_decodes == 2
    running.check_invariants()


def test_those_that_were_served_come_last(running):
    states = [make_state(number) for number in range(3)]
    for state in states:
        start(running, state)
    running.drain(states[1])
    states[1].phase = Phase.DRAIN
    running.serve_last([states[0]])
    assert running.decoding == [states[2], states[0]]
    assert list(running) == [states[0], states[2], states[1]]
    assert running.num_free_seats == 1


def test_candidates_rank_strictly_after(running):
    states = [make_state(number) for number in range(3)]
    for state in states:
        start(running, state)
    running.rerank(states[0], 1)
    assert list(running.ranked_after(1)) == [states[2]]
    assert list(running.ranked) == states
