"""The `inproc` transport through the client that it makes."""

from collections.abc import Iterator
from typing import Any

import pytest

from enginecore.client import make_client
from enginecore.clock import VirtualClock
from enginecore.errors import EngineCoreError, EngineDeadError, InvalidRequestError
from enginecore.interfaces import EngineCoreClient
from enginecore.messages import EngineCoreOutput, FinishReason
from enginecore.sampling import SamplingParams
from enginecore.settings import load_settings
from enginecore_conformance.oracle.model import OracleModel
from tests.core.engines import request


def make(*, oracle: dict[str, Any] | None = None, **settings: Any) -> EngineCoreClient:
    arguments = {"executor": {"use": "oracle", "oracle": oracle or {}}, "max_model_len": "auto", "num_kv_blocks": 32}
    return make_client(load_settings({**arguments, **settings}, environ={}), clock=VirtualClock())


@pytest.fixture
def client() -> Iterator[EngineCoreClient]:
    client = make()
    yield client
    client.shutdown()


def until_idle(client: EngineCoreClient, outputs: list[EngineCoreOutput] | None = None) -> list[EngineCoreOutput]:
    """All outputs to come, added to `outputs` as they do."""
    outputs = [] if outputs is None else outputs
    while not (got := client.get_output()).idle:
        outputs += got.outputs
    return outputs


def test_it_is_the_only_front_end(client: EngineCoreClient) -> None:
    assert client.client_index == 0


def test_idle_is_said_when_nothing_is_left_to_say(client: EngineCoreClient) -> None:
    assert client.get_output().idle
    client.add_request(request("r"))
    assert len(until_idle(client)) == 4
    assert client.get_output().idle


# -- paused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("oracle", [{}, {"depth": 4, "feeds_tokens": True}])
def test_25_waiting_for_a_paused_engine_is_refused_since_nobody_else_could_resume_it(oracle: dict[str, Any]) -> None:
    client = make(oracle=oracle)
    client.add_request(request("r", max_tokens=9))
    client.get_output()
    client.call_utility("pause")
    outputs: list[EngineCoreOutput] = []
    with pytest.raises(EngineCoreError, match=r'is paused while requests are unfinished.*call_utility\("resume"\)'):
        until_idle(client, outputs)
    with pytest.raises(EngineCoreError, match="is paused"):
        client.get_output()
    client.call_utility("resume")
    until_idle(client, outputs)
    assert [len(output.new_token_ids) for output in outputs] == [1] * len(outputs)
    assert outputs[-1].finish_reason is FinishReason.LENGTH
    client.shutdown()


def test_25_paused_without_requests_it_is_idle_and_an_abort_ends_the_wait(client: EngineCoreClient) -> None:
    client.call_utility("pause")
    assert until_idle(client) == []
    client.add_request(request("a"))
    client.add_request(request("b"))
    client.abort_requests(["a"])
    with pytest.raises(EngineCoreError, match="is paused"):
        until_idle(client)
    client.abort_requests(["b"])
    assert until_idle(client) == []


@pytest.mark.parametrize("shutdown_timeout", [0, 60])
def test_shutdown_ends_what_is_paused(shutdown_timeout: float) -> None:
    client = make(shutdown_timeout=shutdown_timeout)
    client.add_request(request("running", max_tokens=50))
    client.get_output()
    client.call_utility("pause")
    client.add_request(request("queued"))
    client.shutdown()
    assert {output.request_id: output.finish_reason for output in client.get_output().outputs} == {
        "running": FinishReason.ABORT,
        "queued": FinishReason.ABORT,
    }
    with pytest.raises(EngineDeadError, match="was shut down"):
        client.get_output()


# -- messages --------------------------------------------------------------------------------------------------------


def test_through_the_codec_the_engine_core_has_a_request_of_its_own() -> None:
    client = make(transport={"inproc": {"codec_round_trip": True}})
    params = SamplingParams(temperature=0, top_k=9, seed=4, max_tokens=6, min_tokens=3, ignore_eos=True)
    sent = [request("plain"), request("rich", prompt=7)]
    sent[1].params, sent[1].hints, sent[1].tenant, sent[1].cache_salt = params, {"length": 3.5}, "somebody", "salt"
    model = OracleModel.of_engine(client.info)
    right = {wire.request_id: model.expected_output_of(wire).token_ids for wire in sent}
    for wire in sent:
        client.add_request(wire)
        wire.prompt_token_ids[:] = [1]
    got: dict[str, list[int]] = {name: [] for name in right}
    for output in until_idle(client):
        got[output.request_id] += output.new_token_ids
    assert got == {name: list(tokens) for name, tokens in right.items()}
    assert [len(tokens) for tokens in got.values()] == [4, 6]
    client.shutdown()


def test_through_the_codec_what_has_no_plain_form_is_the_requests_fault() -> None:
    coded = make(transport={"inproc": {"codec_round_trip": True}})
    wire = request("r")
    wire.hints = {"length": object()}  # type: ignore[dict-item]
    with pytest.raises(EngineCoreError, match="cannot be sent to another process"):
        coded.add_request(wire)
    coded.add_request(request("good"))
    assert len(until_idle(coded)) == 4
    coded.shutdown()


def test_a_refusal_is_raised_where_the_request_was_added(client: EngineCoreClient) -> None:
    with pytest.raises(InvalidRequestError, match="the prompt is empty"):
        client.add_request(request("r", prompt=0))
    assert client.get_output().idle
