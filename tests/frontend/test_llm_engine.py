import pytest

from enginecore import LLMEngine, SamplingParams
from enginecore.errors import EngineDeadError, InvalidRequestError
from enginecore.frontend.input_processor import derive_seed
from enginecore.frontend.outputs import RequestOutputKind
from tests.frontend.byte_tokenizer import ByteTokenizer
from tests.frontend.scripted_client import ScriptedClient

DELTA, FINAL_ONLY = RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY


def make(text="abcdefgh", **options):
    client = ScriptedClient(lambda request: list(text.encode()), **options)
    return LLMEngine(client, ByteTokenizer), client


def drain(engine):
    outputs = []
    while engine.has_unfinished_requests():
        outputs += engine.step()
    return outputs


def seed_of(request):
    assert isinstance(request.params, SamplingParams)
    return request.params.seed


def ends(outputs):
    return [(output.request_id, output.outputs[0].finish_reason) for output in outputs if output.finished]


def test_requests_run_side_by_side_and_end_once_each():
    engine, client = make()
    engine.add_request("a", "Hi", SamplingParams(max_tokens=2))
    engine.add_request("b", [1, 2, 3], SamplingParams(max_tokens=3), output_kind=DELTA)
    outputs = drain(engine)
    shown = [(output.request_id, output.outputs[0].text) for output in outputs]
    assert shown == [("a", "a"), ("b", "a"), ("a", "ab"), ("b", "b"), ("b", "c")]
    assert ends(outputs) == [("a", "length"), ("b", "length")]
    assert client.num_steps == 3
    assert engine.step() == []


def test_a_stop_string_ends_the_request_in_the_engine_core_too():
    engine, client = make()
    engine.add_request("a", "Hi", SamplingParams(max_tokens=50, stop=("cd",)), output_kind=FINAL_ONLY)
    (output,) = drain(engine)
    assert (output.outputs[0].text, output.outputs[0].stop_reason) == ("ab", "cd")
    assert client.aborted == [client.requests[0].request_id]
    assert client.live == {}


def test_eos_ends_a_request_and_its_text_is_not_shown():
    engine, _ = make("ab")
    engine.add_request("a", "Hi", SamplingParams(max_tokens=50, skip_special_tokens=False), output_kind=FINAL_ONLY)
    (output,) = drain(engine)
    assert (output.outputs[0].text, output.outputs[0].finish_reason) == ("ab", "stop")
    assert output.outputs[0].token_ids == [97, 98, 256]


def test_an_aborted_request_gets_one_terminal_output_from_the_next_step():
    engine, client = make()
    engine.add_request("a", "Hi", output_kind=DELTA)
    engine.add_request("b", "Hi", SamplingParams(max_tokens=2), output_kind=FINAL_ONLY)
    engine.step()
    engine.abort_request(["a", "never seen"])
    engine.abort_request("a")
    (aborted,) = engine.step()
    assert (aborted.request_id, aborted.finished, aborted.outputs[0].finish_reason) == ("a", True, "abort")
    assert client.aborted == [client.requests[0].request_id]
    assert ends(drain(engine)) == [("b", "length")]


def test_a_live_id_is_refused_without_touching_the_live_request():
    engine, client = make()
    engine.add_request("a", "Hi", SamplingParams(max_tokens=2))
    with pytest.raises(InvalidRequestError, match="'a' is taken"):
        engine.add_request("a", "Hi")
    assert len(client.requests) == 1
    assert ends(drain(engine)) == [("a", "length")]


def test_an_id_may_be_used_again_right_after_its_terminal_output():
    engine, _ = make()
    for _ in range(3):
        engine.add_request("a", "Hi", SamplingParams(max_tokens=1))
        (output,) = engine.step()
        assert (output.finished, output.outputs[0].text) == (True, "a")


def test_an_id_may_be_used_again_right_after_an_abort_and_late_outputs_do_not_hit_the_new_request():
    engine, client = make()
    engine.add_request("a", "Hi", output_kind=DELTA)
    engine.step()
    old = client.requests[0].request_id
    client.late = [client._advance(old, client.live[old])]
    engine.abort_request("a")
    engine.add_request("a", "Hi", SamplingParams(max_tokens=2), output_kind=DELTA)
    outputs = drain(engine)
    assert [(output.outputs[0].text, output.outputs[0].finish_reason) for output in outputs] == [
        ("", "abort"),
        ("a", None),
        ("b", "length"),
    ]
    assert client.aborted == [old]


def test_what_the_engine_core_refuses_is_refused_here_and_leaves_nothing():
    engine, _ = make()
    with pytest.raises(InvalidRequestError, match="adapters"):
        engine.add_request("a", "Hi", adapter="x")
    assert not engine.has_unfinished_requests()
    engine.add_request("a", "Hi", SamplingParams(max_tokens=1))
    assert ends(drain(engine)) == [("a", "length")]


def test_an_error_of_the_engine_core_becomes_the_error_of_that_request():
    engine, client = make()
    engine.add_request("a", "Hi", SamplingParams(max_tokens=1))
    engine.add_request("b", "Hi", SamplingParams(max_tokens=1))
    client.errors[client.requests[0].request_id] = "the KV cache is too small"
    outputs = drain(engine)
    assert ends(outputs) == [("a", "error"), ("b", "length")]
    assert [output.error for output in outputs] == ["the KV cache is too small", None]


def test_seeds_depend_on_the_engine_seed_and_the_number_of_the_accepted_request():
    engine, client = make()
    engine.add_request("a", "Hi")
    for refused in ("", [-1]):
        with pytest.raises(InvalidRequestError):
            engine.add_request("no", refused)
    with pytest.raises(InvalidRequestError):
        engine.add_request("no", "Hi", adapter="x")
    engine.add_request("b", "Hi", SamplingParams(seed=3))
    engine.add_request("c", "Hi")
    assert [seed_of(request) for request in client.requests] == [derive_seed(7, 0), 3, derive_seed(7, 2)]


def test_a_dead_engine_core_is_loud_and_every_live_request_still_gets_its_end():
    engine, client = make()
    engine.add_request("a", "Hi", output_kind=DELTA)
    engine.add_request("b", "Hi", output_kind=FINAL_ONLY)
    engine.step()

    def die():
        raise EngineDeadError("the executor has failed")

    client.on_output = die
    with pytest.raises(EngineDeadError, match="the executor has failed"):
        engine.step()
    outputs = engine.step()
    assert ends(outputs) == [("a", "error"), ("b", "error")]
    assert {output.error for output in outputs} == {"the executor has failed"}
    assert outputs[1].outputs[0].text == "a"
    assert not engine.has_unfinished_requests()


def test_an_interrupt_while_adding_leaves_nothing_behind():
    engine, client = make()
    accept = client.add_request

    def interrupted(request):
        accept(request)
        raise KeyboardInterrupt

    client.add_request = interrupted
    with pytest.raises(KeyboardInterrupt):
        engine.add_request("a", "Hi")
    assert client.live == {}
    assert not engine.has_unfinished_requests()
    client.add_request = accept
    engine.add_request("a", "Hi", SamplingParams(max_tokens=1))
    assert ends(drain(engine)) == [("a", "length")]


def test_the_tokenizer_is_loaded_by_the_first_request_that_needs_text_and_once():
    loaded = []

    def load():
        loaded.append(ByteTokenizer())
        return loaded[-1]

    engine = LLMEngine(ScriptedClient(lambda request: [97]), load)
    engine.add_request("a", [1], SamplingParams(max_tokens=1, detokenize=False))
    drain(engine)
    assert loaded == []
    engine.add_request("b", "Hi", SamplingParams(max_tokens=1))
    drain(engine)
    assert loaded == [engine.get_tokenizer()]


def test_utilities_and_shutdown_reach_the_engine_core():
    engine, client = make()
    with engine:
        assert engine.reset_prefix_cache() is True
        assert engine.reset_prefix_cache(reset_running_requests=True) is True
    assert client.utilities == [("reset_prefix_cache", False), ("reset_prefix_cache", True)]
    assert client.num_shutdowns == 1


def test_all_that_is_kept_of_ended_requests_is_nothing():
    engine, client = make()
    for number in range(20):
        engine.add_request(str(number), "Hi", SamplingParams(max_tokens=3, stop=("c", str(number)), logprobs=2))
        if number % 3 == 0:
            engine.abort_request(str(number))
    assert len(ends(drain(engine))) == 20
    assert client.live == {}
    assert engine.step() == []
