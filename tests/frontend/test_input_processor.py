from typing import Any

import pytest

from enginecore import SamplingParams
from enginecore.errors import InvalidRequestError, PluginError
from enginecore.frontend.input_processor import InputProcessor, RequestFields, derive_seed
from enginecore.request_checks import MAX_HINTS, check_request_id
from enginecore.sampling import PoolingParams
from tests.frontend.byte_tokenizer import ByteTokenizer
from tests.frontend.scripted_client import make_info


def make(**info):
    return InputProcessor(make_info(**info), ByteTokenizer)


@pytest.mark.parametrize(
    ("prompt", "text", "token_ids"),
    [
        ("Hi", "Hi", [72, 105]),
        ({"prompt": "Hi"}, "Hi", [72, 105]),
        ([1, 2], None, [1, 2]),
        ((1, 2), None, [1, 2]),
        ({"prompt_token_ids": [1, 2]}, None, [1, 2]),
        ({"prompt": "shown", "prompt_token_ids": [1, 2]}, "shown", [1, 2]),
        ({"prompt": None, "prompt_token_ids": [1, 2]}, None, [1, 2]),
    ],
)
def test_a_prompt_may_be_text_token_ids_or_both(prompt, text, token_ids):
    engine_input = make().process(prompt)
    assert (engine_input.prompt, engine_input.prompt_token_ids) == (text, token_ids)


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ("", "the prompt is empty"),
        ([], "the prompt is empty"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt_token_ids": []}, "the prompt is empty"),
        ({}, 'must hold "prompt" or "prompt_token_ids"'),
        ({"prompt": "Hi", "promt_token_ids": [1]}, r"unknown: \['promt_token_ids'\]"),
        ({"prompt": 3}, '"prompt" must be a string, got int'),
        (b"Hi", "got bytes"),
        (bytearray(b"Hi"), "got bytearray"),
        (None, "got NoneType"),
        ("a\ud800b", r"the prompt must be text that UTF-8 can hold: '\\ud800' at index 1"),
        ({"prompt": "\udcff"}, r"text that UTF-8 can hold: '\\udcff' at index 0"),
        ({"prompt": "\udcff", "prompt_token_ids": [1]}, "text that UTF-8 can hold"),
        (7, "got int"),
        ({"prompt_token_ids": "Hi"}, "got str"),
        ([1, 2.0], "integers, got 2.0 at index 1"),
        ([True], "integers, got True at index 0"),
        ([0, -1], r"in \[0, 300\), the vocabulary of scripted; got -1 at index 1"),
        ([300], r"in \[0, 300\), the vocabulary of scripted; got 300 at index 0"),
    ],
)
def test_what_is_no_prompt_is_refused_in_words(prompt, says):
    """Field case 29."""
    with pytest.raises(InvalidRequestError, match=says):
        make().process(prompt)


def test_29_text_that_gives_no_token_is_an_empty_prompt():
    class Stripping(ByteTokenizer):
        def encode(self, text, *, add_special_tokens=True):
            return super().encode(text.strip())

    processor = InputProcessor(make_info(), Stripping)
    assert processor.process(" a ").prompt_token_ids == [97]
    with pytest.raises(InvalidRequestError, match="the prompt is empty"):
        processor.process(" \n ")


@pytest.mark.parametrize(("length", "max_tokens", "given"), [(63, 5, 5), (63, None, 1), (1, None, 63), (64, 0, 0)])
def test_a_prompt_that_leaves_room_is_accepted_and_max_tokens_filled(length, max_tokens, given):
    engine_input = make(max_model_len=64).process([1] * length, SamplingParams(max_tokens=max_tokens))
    assert engine_input.params.max_tokens == given


@pytest.mark.parametrize(
    ("length", "max_tokens", "says"),
    [
        (64, 1, r"has 64 tokens and may have 63 \(max_model_len is 64 and one output token"),
        (65, None, "has 65 tokens and may have 63"),
        (65, 0, r"has 65 tokens and may have 64 \(max_model_len is 64 and nothing is generated"),
    ],
)
def test_a_prompt_without_room_for_its_output_is_refused_with_both_numbers(length, max_tokens, says):
    with pytest.raises(InvalidRequestError, match=says):
        make(max_model_len=64).process([1] * length, SamplingParams(max_tokens=max_tokens))


def test_min_tokens_that_cannot_be_reached_are_refused():
    with pytest.raises(InvalidRequestError, match=r"min_tokens must be an integer in \[0, max_tokens = 4\]"):
        make(max_model_len=64).process([1] * 60, SamplingParams(max_tokens=None, min_tokens=5))


def test_stop_token_ids_must_be_in_the_vocabulary():
    with pytest.raises(InvalidRequestError, match=r"stop_token_ids must be in \[0, 300\).*got 300"):
        make().process([1], SamplingParams(stop_token_ids=(299, 300)))


def test_stop_strings_must_be_text():
    with pytest.raises(InvalidRequestError, match=r"stop must be text that UTF-8 can hold: '\\ud800' at index 1"):
        make().process([1], SamplingParams(stop=("fine", "a\ud800")))


def test_default_parameters_are_those_of_sampling_params():
    assert make().process([1]).params == SamplingParams()


@pytest.mark.parametrize("params", [PoolingParams(), {"temperature": 0}, "greedy"])
def test_other_parameters_are_refused_by_type(params):
    with pytest.raises(InvalidRequestError, match=f"must be SamplingParams, got {type(params).__name__}"):
        make().process([1], params)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"priority": "high"}, r"`\$.priority`"),
        ({"priority": float("nan")}, r"priority must be a number in \[-1e\+300, 1e\+300\], got nan"),
        ({"priority": 10**400}, r"`\$.priority`"),
        ({"deadline": float("inf")}, "deadline must be a number in .* got inf"),
        ({"tenant": None}, r"`\$.tenant`"),
        ({"tenant": "x" * 257}, "tenant must be at most 256 characters long, got 257"),
        ({"cache_salt": 3}, r"`\$.cache_salt`"),
        ({"hints": {"length": "long"}}, r"`\$.hints"),
        ({"hints": {str(n): 0.0 for n in range(MAX_HINTS + 1)}}, "hints must have at most 64 entries, got 65"),
        ({"skip_prefix_cache": 1}, r"`\$.skip_prefix_cache`"),
        ({"prio": 1}, "has no field 'prio'; there are arrival_time, tenant"),
        ({"tenant": "\ud800"}, r"tenant must be text that UTF-8 can hold: '\\ud800' at index 0"),
        ({"cache_salt": "a\udfff"}, r"cache_salt must be .* at index 1"),
        ({"adapter": "\ud800"}, "adapter must be"),
        ({"hints": {"a": 1, "\ud800": 2}}, "hints must be"),
    ],
)
def test_fields_beside_the_prompt_are_typed_and_bounded(fields, says):
    with pytest.raises(InvalidRequestError, match=says):
        make().process([1], None, fields)


def test_fields_reach_the_engine_core():
    fields = RequestFields(
        priority=2, tenant="a", deadline=4.5, cache_salt="s", hints={"length": 3}, skip_prefix_cache=True
    )
    request = make().process([1, 2], SamplingParams(), fields).to_request("r-0", seed=11)
    assert (request.request_id, request.prompt_token_ids, request.arrival_time) == ("r-0", [1, 2], None)
    assert {name: getattr(request, name) for name in fields} == fields


def test_the_drawn_seed_is_used_where_a_request_has_none():
    requests = [make().process([1], SamplingParams(seed=seed)).to_request("r-0", seed=11) for seed in (None, 5)]
    assert [request.params for request in requests] == [SamplingParams(seed=11), SamplingParams(seed=5)]


def test_derived_seeds_are_stable_and_differ():
    assert derive_seed(0, 0) == 1576848291327681832
    seeds = [derive_seed(seed, index) for seed in (0, 1, -1) for index in range(100)]
    assert len(set(seeds)) == 300
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize("request_id", ["", None, 3, "x" * 257])
def test_request_ids_are_strings_of_bounded_length(request_id):
    with pytest.raises(InvalidRequestError, match="1 to 256 characters"):
        check_request_id(request_id)


def test_request_ids_are_text():
    check_request_id("é😀")
    with pytest.raises(InvalidRequestError, match="request_id must be text that UTF-8 can hold"):
        check_request_id("a\ud800")


def test_a_conversation_becomes_text_and_token_ids():
    prompt = make().render_chat([{"role": "user", "content": "Hi"}], variables={"mood": "good"})
    text = "<user>Hi\nmood=good\n<assistant>"
    assert prompt == {"prompt": text, "prompt_token_ids": [*text.encode()]}


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([], "at least one message"),
        ("Hi", "a list of at least one message"),
        (["Hi"], 'a dict with a "role"'),
        ([{"content": "Hi"}], 'a dict with a "role"'),
    ],
)
def test_what_is_no_conversation_is_refused(messages, says):
    with pytest.raises(InvalidRequestError, match=says):
        make().render_chat(messages, variables={})


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"messages": []}, "must not hold 'messages'"),
        ({"add_generation_prompt": True}, "must not hold 'add_generation_prompt'"),
        ({"self": 1}, "must not hold 'self'"),
        ({1: "x"}, "strings for keys, got 1"),
        ([("mood", "good")], "must be a dict"),
        ({"mood": "\ud800"}, "the conversation must be text that UTF-8 can hold"),
    ],
)
def test_variables_that_a_template_cannot_take_are_refused(variables, says):
    with pytest.raises(InvalidRequestError, match=says):
        make().render_chat([{"role": "user", "content": "Hi"}], variables=variables)


def test_a_conversation_is_text():
    hello = {"role": "user", "content": "Hi"}
    with pytest.raises(InvalidRequestError, match=r"what 'user' says must be text that UTF-8 can hold: .* at index 1 "):
        make().render_chat([hello, {"role": "user", "content": "a\ud800"}], variables={})
    with pytest.raises(InvalidRequestError, match="the conversation must be text that UTF-8 can hold"):
        make().render_chat([hello, {"role": "\ud800", "content": "Hi"}], variables={})


def test_a_template_that_gives_no_text_is_the_tokenizers_fault():
    class Silent(ByteTokenizer):
        def apply_chat_template(self, messages, *, add_generation_prompt=True, **variables) -> Any:
            return None

    with pytest.raises(PluginError, match="must give a string, and gave None"):
        InputProcessor(make_info(), Silent).render_chat([{"role": "user", "content": "Hi"}], variables={})
