"""Front ends that leave, and requests that find the queue full."""

import pytest

from enginecore.core import EngineCore
from enginecore.errors import InvalidRequestError
from enginecore.messages import EngineCoreRequest, FinishReason
from tests.core.engines import make_core, request, run


def of_client(client_index: int, request_id: str, max_tokens: int = 4) -> EngineCoreRequest:
    wire = request(request_id, max_tokens=max_tokens)
    wire.client_index = client_index
    return wire


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("paused", [False, True])
def test_when_a_client_goes_its_requests_go_and_no_others(depth: int, paused: bool) -> None:
    core = make_core(oracle={"depth": depth, "feeds_tokens": True}, max_num_seqs=3)
    for n in range(6):
        core.add_request(of_client(n % 2, f"r{n}", max_tokens=20))
    core.advance()
    if paused:
        core.call_utility("pause")
    core.abort_client(1)
    core.abort_client(1)
    core.abort_client(77)
    core.call_utility("resume")
    outputs = run(core)
    assert {output.request_id for output in outputs} == {"r0", "r2", "r4"}
    assert [output.finish_reason for output in outputs if output.finish_reason is not None] == [FinishReason.LENGTH] * 3
    stats = core.call_utility("get_stats")
    assert stats.num_free_blocks == stats.num_blocks
    assert core.call_utility("collective_rpc", "get_request_ids") == [[]]


# -- 18: a bound on who waits ----------------------------------------------------------------------------------------


def full_core() -> EngineCore:
    """One request runs and one waits; more may not."""
    core = make_core(max_num_seqs=1, max_num_waiting=1)
    core.add_request(request("runs"))
    core.advance()
    core.add_request(request("waits"))
    return core


def test_18_of_twelve_requests_by_two_clients_ten_are_refused_and_two_run() -> None:
    core = make_core(max_num_seqs=1, max_num_waiting=1)
    refused = []
    for n in range(12):
        try:
            core.add_request(of_client(n % 2, f"r{n}"))
        except InvalidRequestError as error:
            refused.append(str(error))
    assert len(refused) == 10
    outputs = run(core)
    assert [output.request_id for output in outputs] == ["r0"] * 4 + ["r1"] * 4
    assert refused[0] == (
        "request 'r2' is refused: 0 are running and 2 waiting, and beyond max_num_seqs = 1 at most max_num_waiting = 1 "
        "may wait; try again later"
    )


def test_18_a_refusal_says_who_is_there_and_leaves_nothing_behind() -> None:
    core = full_core()
    with pytest.raises(InvalidRequestError, match="'late' is refused: 1 are running and 1 waiting"):
        core.add_request(request("late"))
    assert core.call_utility("get_stats").num_waiting == 1
    assert len(run(core)) == 3 + 4
    core.add_request(request("late"))
    assert len(run(core)) == 4


@pytest.mark.parametrize("gone", ["runs", "waits"])
def test_18_an_abort_makes_room_at_once(gone: str) -> None:
    core = full_core()
    core.abort_requests([gone])
    core.add_request(request("next"))
    with pytest.raises(InvalidRequestError, match="try again later"):
        core.add_request(request("late"))
    assert {output.request_id for output in run(core)} == {"runs", "waits", "next"} - {gone}


def test_18_nobody_may_wait_at_all() -> None:
    core = make_core(max_num_seqs=2, max_num_waiting=0)
    core.add_request(request("a"))
    core.add_request(request("b"))
    with pytest.raises(InvalidRequestError, match="beyond max_num_seqs = 2 at most max_num_waiting = 0"):
        core.add_request(request("c"))
    assert {output.request_id for output in run(core)} == {"a", "b"}


def test_18_unset_there_is_no_bound() -> None:
    core = make_core(max_num_seqs=1)
    for n in range(300):
        core.add_request(request(f"r{n}", max_tokens=1))
    assert len(run(core)) == 300


def test_18_held_up_requests_count_as_waiting() -> None:
    core = make_core(max_num_seqs=1, max_num_waiting=1)
    core.call_utility("pause")
    core.add_request(request("a"))
    core.add_request(request("b"))
    with pytest.raises(InvalidRequestError, match="0 are running and 2 waiting"):
        core.add_request(request("c"))
