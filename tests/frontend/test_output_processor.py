"""Text, stop strings and finish reasons as users see them, token by token (field cases of output processing)."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginecore import SamplingParams
from enginecore.clock import VirtualClock
from enginecore.errors import InvalidRequestError
from enginecore.frontend.input_processor import EngineInput
from enginecore.frontend.output_processor import OutputProcessor
from enginecore.frontend.outputs import Logprob, RequestOutputKind
from enginecore.messages import EngineCoreOutput, FinishReason, PositionLogprobs
from tests.frontend.byte_tokenizer import EOS, MARK, ByteTokenizer

DELTA, CUMULATIVE, FINAL_ONLY = RequestOutputKind.DELTA, RequestOutputKind.CUMULATIVE, RequestOutputKind.FINAL_ONLY
PLAIN = ByteTokenizer()
PROMPT = list(b"Hi")


def logprobs_of(token_ids):
    return [PositionLogprobs(token_ids=[t, 65], logprobs=[-0.25, -0.125], sampled_rank=2) for t in token_ids]


def outputs_of(processed):
    """What users get, and what the engine core is told to end."""
    return [state.make_output() for state in processed.states], processed.core_ids_to_abort


def process(processor, outputs):
    return outputs_of(processor.process_outputs(outputs))


def run(
    token_ids,
    *,
    tokenizer=PLAIN,
    kind=DELTA,
    per_step=1,
    reason=FinishReason.LENGTH,
    stop_reason=None,
    prompt=PROMPT,
    fields=None,
    **params,
):
    """All outputs of one request whose model gives `token_ids`, with `reason` in the step of the last one."""
    sampling = SamplingParams(max_tokens=len(token_ids) or 1, **params)
    processor = OutputProcessor(lambda: tokenizer, VirtualClock())
    processor.add_request("r", "r-0", EngineInput(None, prompt, sampling), kind)
    outputs, aborted = [], []
    for start in range(0, max(len(token_ids), 1), per_step):
        step = token_ids[start : start + per_step]
        last = start + per_step >= len(token_ids)
        output = EngineCoreOutput("r-0", step, reason if last else None, stop_reason if last else None)
        if sampling.logprobs is not None:
            output.logprobs = logprobs_of(step)
        made, abort = process(processor, [output])
        outputs += made
        aborted += abort
    assert processor.num_live == 0
    assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
    assert [output.outputs[0].finish_reason is None for output in outputs] == [True] * (len(outputs) - 1) + [False]
    return outputs, aborted


def texts(outputs):
    return [output.outputs[0].text for output in outputs]


def final(token_ids, **options):
    """The single output of the request."""
    outputs, _ = run(token_ids, kind=FINAL_ONLY, **options)
    assert len(outputs) == 1
    return outputs[0].outputs[0]


# -- characters over token borders -----------------------------------------------------------------------------------


def test_a_character_of_four_tokens_comes_whole():
    outputs, _ = run([*"a😀b".encode()])
    assert texts(outputs) == ["a", "", "", "", "😀", "b"]


def test_a_family_emoji_comes_without_replacement_characters():
    family = "👩‍👩‍👧‍👦"
    outputs, _ = run([*family.encode()])
    assert "".join(texts(outputs)) == family


def test_a_token_may_end_one_character_and_begin_the_next():
    you, good = "你".encode(), "好".encode()
    tokenizer = ByteTokenizer([you[:1], you[1:] + good[:2], good[2:]])
    outputs, _ = run([258, 259, 260], tokenizer=tokenizer)
    assert texts(outputs) == ["", "", "你好"]


@pytest.mark.parametrize("kind", [DELTA, FINAL_ONLY])
def test_a_character_left_open_at_the_end_is_replaced_once(kind):
    outputs, _ = run([*b"ab", *"😀".encode()[:3]], kind=kind)
    assert "".join(texts(outputs)) == "ab\ufffd"
    assert texts(outputs)[-1].endswith("\ufffd")


def test_bytes_that_are_no_character_are_replaced_where_they_stand():
    assert final([*b"a", 0xFF, *b"b"]).text == "a\ufffdb"


def test_a_prompt_that_ends_within_a_character_is_not_repeated():
    character = "你".encode()
    outputs, _ = run([character[2], *b"!"], prompt=[*b"Hello ", *character[:2]])
    assert texts(outputs) == ["你", "!"]


def test_an_abort_shows_what_was_held_back_and_the_open_character_once():
    processor = OutputProcessor(lambda: PLAIN, VirtualClock())
    processor.add_request("r", "r-0", EngineInput(None, PROMPT, SamplingParams(stop=("xyz",))), DELTA)
    tokens = [*b"wxy", 0xF0]
    made, _ = process(processor, [EngineCoreOutput("r-0", tokens)])
    aborted, core_ids = outputs_of(processor.abort_requests(["r", "r", "unknown"]))
    assert core_ids == ["r-0"]
    assert texts(made) == ["w"]
    assert texts(aborted) == ["xy\ufffd"]
    assert aborted[0].outputs[0].finish_reason == "abort"
    assert processor.abort_requests(["r"]) == ([], [])


# -- stop strings ----------------------------------------------------------------------------------------------------

LETTERS = ByteTokenizer([b"DEF", b"G", b"HI", b"J", b"abSTOPcd"])
DEFGHIJ = [258, 259, 260, 261]


@pytest.mark.parametrize("kind", [DELTA, CUMULATIVE, FINAL_ONLY])
@pytest.mark.parametrize("per_step", [1, 2, 7])
@pytest.mark.parametrize(("include", "text"), [(False, "ABC"), (True, "ABCDEFGHIJ")])
def test_a_stop_string_over_token_borders_ends_the_request_and_does_not_leak(kind, per_step, include, text):
    outputs, aborted = run(
        [*b"ABC", *DEFGHIJ, *b"never"],
        tokenizer=LETTERS,
        kind=kind,
        per_step=per_step,
        stop=["DEFGHIJ"],
        include_stop_str_in_output=include,
    )
    completion = outputs[-1].outputs[0]
    if kind is DELTA:
        assert "".join(texts(outputs)) == text
    else:
        assert completion.text == text
        assert all(text.startswith(shown) for shown in texts(outputs))
    assert (completion.finish_reason, completion.stop_reason) == ("stop", "DEFGHIJ")
    ids = [token for output in outputs for token in output.outputs[0].token_ids]
    assert (ids if kind is not CUMULATIVE else completion.token_ids) == [*b"ABC", *DEFGHIJ]
    assert aborted == ["r-0"]


def test_a_stop_string_within_a_token_cuts_its_text():
    completion = final([*b"x", LETTERS.token("abSTOPcd"), *b"y"], tokenizer=LETTERS, stop="STOP")
    assert (completion.text, completion.stop_reason) == ("xab", "STOP")
    assert completion.token_ids == [*b"x", LETTERS.token("abSTOPcd")]
    included = final([LETTERS.token("abSTOPcd")], tokenizer=LETTERS, stop="STOP", include_stop_str_in_output=True)
    assert included.text == "abSTOP"


def test_of_two_stop_strings_the_one_completed_first_counts():
    assert final([*b"xabcd"], stop=["abcd", "ab"]).stop_reason == "ab"
    assert final([*b"xabcd"], stop=["bc", "abcd"]).text == "xa"


def test_of_two_stop_strings_completed_by_one_character_the_longer_counts():
    completion = final([*b"xabc"], stop=["c", "abc"])
    assert (completion.text, completion.stop_reason) == ("x", "abc")


def test_a_stop_string_completed_by_the_last_allowed_token_is_a_stop_that_the_core_knows_of():
    outputs, aborted = run([*b"abEND"], stop=["END"])
    completion = outputs[-1].outputs[0]
    assert (completion.finish_reason, completion.stop_reason) == ("stop", "END")
    assert "".join(texts(outputs)) == "ab"
    assert aborted == []


def test_a_near_miss_is_shown_when_the_length_ends_it():
    outputs, _ = run([*b"abEN"], stop=["END"])
    assert texts(outputs) == ["a", "b", "", "EN"]
    assert outputs[-1].outputs[0].finish_reason == "length"


def test_text_is_held_back_only_while_it_may_begin_a_stop_string():
    outputs, _ = run([*b"aEbENxEND"], stop=["END"])
    assert texts(outputs) == ["a", "", "Eb", "", "", "ENx", "", "", ""]


def test_a_stop_string_may_be_completed_by_the_replacement_of_an_open_character():
    outputs, aborted = run([*b"ab", 0xF0], stop=["b\ufffd"])
    assert "".join(texts(outputs)) == "a"
    assert outputs[-1].outputs[0].stop_reason == "b\ufffd"
    assert aborted == []


def test_ids_and_logprobs_are_never_held_back():
    outputs, _ = run([*b"abEND"], stop=["END"], logprobs=1)
    assert [output.outputs[0].token_ids for output in outputs] == [[b] for b in b"abEND"]
    assert [len(output.outputs[0].logprobs) for output in outputs] == [1] * 5
    assert texts(outputs) == ["a", "b", "", "", ""]


def test_logprobs_end_with_the_token_that_completed_the_stop_string():
    completion = final([*b"abENDcd"], per_step=7, stop=["END"], logprobs=1)
    assert completion.token_ids == [*b"abEND"]
    assert len(completion.logprobs) == 5
    assert completion.cumulative_logprob == -1.25


# -- min_tokens ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_step", [1, 3])
def test_a_stop_string_within_the_first_min_tokens_is_text(per_step):
    completion = final([*b"xSxSxS"], per_step=per_step, stop=["S"], min_tokens=4)
    assert (completion.text, completion.token_ids) == ("xSxSx", [*b"xSxSxS"])


def test_a_stop_string_may_begin_within_the_first_min_tokens():
    completion = final([*b"aENDb"], stop=["END"], min_tokens=3)
    assert (completion.text, completion.stop_reason) == ("a", "END")


# -- stop tokens -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop_token", "include", "skip_special", "text"),
    [
        (EOS, False, True, "ab"),
        (EOS, False, False, "ab"),
        (EOS, True, True, "ab"),
        (EOS, True, False, "ab<eos>"),
        (ord("!"), False, True, "ab"),
        (ord("!"), True, True, "ab!"),
    ],
)
@pytest.mark.parametrize("per_step", [1, 3])
def test_the_text_of_a_stop_token_is_shown_only_on_request_and_its_id_always(
    stop_token, include, skip_special, text, per_step
):
    stop_reason = None if stop_token == EOS else stop_token
    completion = final(
        [*b"ab", stop_token],
        reason=FinishReason.STOP,
        stop_reason=stop_reason,
        per_step=per_step,
        include_stop_str_in_output=include,
        skip_special_tokens=skip_special,
    )
    assert completion.text == text
    assert completion.token_ids == [*b"ab", stop_token]
    assert (completion.finish_reason, completion.stop_reason) == ("stop", stop_reason)


@pytest.mark.parametrize(("skip", "text"), [(True, "ab"), (False, "a<mark>b")])
def test_special_tokens_within_the_text_follow_skip_special_tokens(skip, text):
    completion = final([*b"a", MARK, *b"b"], skip_special_tokens=skip)
    assert (completion.text, completion.token_ids) == (text, [*b"a", MARK, *b"b"])


# -- the whole, against a reference that looks at the full text ------------------------------------------------------

NASTY = ByteTokenizer(["é".encode()[:1], "é".encode()[1:] + "😀".encode()[:2], "😀".encode()[2:], b"ab", b"ba", b"aab"])
nasty_tokens = st.lists(
    st.sampled_from([*b"abb", *"é😀".encode(), 0xFF, EOS, MARK, *range(258, NASTY.vocab_size)]), min_size=1, max_size=40
)
nasty_stops = st.lists(st.text("abé😀\ufffd", min_size=1, max_size=4), max_size=3)


def expected(token_ids, stops, include, min_tokens):
    """Text, number of tokens and stop string, by looking at the text after every token."""
    stream = NASTY.decode_stream(PROMPT)
    text, floor = "", 0
    for count, token_id in enumerate([*token_ids, None], 1):
        if token_id is None:
            text = NASTY.decode(token_ids)
            count -= 1
        else:
            text += stream.step(token_id) or ""
        if count <= min_tokens:
            floor = len(text)
        ends = [(text.find(s, max(floor - len(s) + 1, 0)) + len(s), -len(s), s) for s in stops]
        ends = [end for end in ends if end[0] + end[1] >= 0]
        if ends:
            end, length, stop = min(ends)
            return text[: end if include else end + length], count, stop
    return text, len(token_ids), None


@settings(max_examples=300)
@given(
    tokens=nasty_tokens,
    stops=nasty_stops,
    include=st.booleans(),
    min_tokens=st.integers(0, 6),
    per_step=st.integers(1, 5),
)
def test_streamed_text_equals_the_text_at_once_equals_the_truncated_full_decode(
    tokens, stops, include, min_tokens, per_step
):
    options = {
        "tokenizer": NASTY,
        "stop": stops,
        "include_stop_str_in_output": include,
        "min_tokens": min(min_tokens, len(tokens)),
        "logprobs": 1,
    }
    text, count, stop = expected(tokens, stops, include, min(min_tokens, len(tokens)))
    streamed, _ = run(tokens, kind=DELTA, **options)
    whole, _ = run(tokens, kind=FINAL_ONLY, per_step=per_step, **options)
    grown, _ = run(tokens, kind=CUMULATIVE, per_step=per_step, **options)
    assert "".join(texts(streamed)) == whole[-1].outputs[0].text == grown[-1].outputs[0].text == text
    assert [t for output in streamed for t in output.outputs[0].token_ids] == tokens[:count]
    assert whole[-1].outputs[0].token_ids == grown[-1].outputs[0].token_ids == tokens[:count]
    assert sum(len(output.outputs[0].logprobs) for output in streamed) == count == len(grown[-1].outputs[0].logprobs)
    for outputs in (streamed, whole, grown):
        assert outputs[-1].outputs[0].stop_reason == stop
        assert outputs[-1].outputs[0].finish_reason == ("length" if stop is None else "stop")
    for earlier, later in zip(texts(grown), texts(grown)[1:], strict=False):
        assert later.startswith(earlier)


# -- outputs ---------------------------------------------------------------------------------------------------------


def test_cumulative_outputs_are_snapshots():
    outputs, _ = run([*b"abc"], kind=CUMULATIVE, logprobs=1)
    assert texts(outputs) == ["a", "ab", "abc"]
    assert [output.outputs[0].token_ids for output in outputs] == [[97], [97, 98], [97, 98, 99]]
    assert [len(output.outputs[0].logprobs) for output in outputs] == [1, 2, 3]
    assert [output.outputs[0].cumulative_logprob for output in outputs] == [-0.25, -0.5, -0.75]


def test_logprobs_name_the_sampled_token_first_with_its_rank():
    completion = final([*b"aA"], logprobs=1)
    assert completion.logprobs == [
        {97: Logprob(-0.25, 2, "a"), 65: Logprob(-0.125, 1, "A")},
        {65: Logprob(-0.25, 2, "A")},
    ]


def test_without_detokenize_no_tokenizer_is_loaded():
    def load():
        raise AssertionError("the tokenizer was asked for")

    processor = OutputProcessor(load, VirtualClock())
    params = SamplingParams(detokenize=False, logprobs=1, max_tokens=2)
    processor.add_request("r", "r-0", EngineInput(None, PROMPT, params), FINAL_ONLY)
    output = EngineCoreOutput("r-0", [5, 6], FinishReason.LENGTH, logprobs=logprobs_of([5, 6]))
    made, _ = process(processor, [output])
    completion = made[0].outputs[0]
    assert (completion.text, completion.token_ids) == ("", [5, 6])
    assert completion.logprobs is not None
    assert completion.logprobs[0] == {5: Logprob(-0.25, 2, None), 65: Logprob(-0.125, 1, None)}


def test_a_request_may_end_without_a_token():
    outputs, _ = run([])
    assert texts(outputs) == [""]
    assert outputs[0].outputs[0].token_ids == []
    assert outputs[0].metrics.first_token_time is None
    assert outputs[0].metrics.time_to_first_token is None


def test_an_error_of_the_core_ends_the_request_with_its_text_so_far():
    processor = OutputProcessor(lambda: PLAIN, VirtualClock())
    processor.add_request("r", "r-0", EngineInput(None, PROMPT, SamplingParams(stop=("xy",))), FINAL_ONLY)
    steps = [EngineCoreOutput("r-0", [*b"ax"]), EngineCoreOutput("r-0", [], FinishReason.ERROR, error="out of luck")]
    made = [process(processor, [step]) for step in steps]
    assert made[0] == ([], [])
    output = made[1][0][0]
    assert (output.finished, output.error, output.outputs[0].finish_reason) == (True, "out of luck", "error")
    assert output.outputs[0].text == "ax"
    assert made[1][1] == []


class BreaksOnZ(ByteTokenizer):
    def decode_stream(self, prompt_token_ids=(), *, skip_special_tokens=True):
        stream = super().decode_stream(prompt_token_ids, skip_special_tokens=skip_special_tokens)
        step = stream.step

        def picky(token_id):
            if token_id == ord("z"):
                raise RuntimeError("no z")
            return step(token_id)

        stream.step = picky
        return stream


def test_a_tokenizer_that_fails_on_one_text_ends_only_that_request():
    processor = OutputProcessor(BreaksOnZ, VirtualClock())
    for name in ("good", "bad"):
        processor.add_request(name, f"{name}-0", EngineInput(None, PROMPT, SamplingParams()), DELTA)
    step = [EngineCoreOutput("bad-0", [*b"z"]), EngineCoreOutput("good-0", [*b"a"])]
    made, aborted = process(processor, step)
    assert [(output.request_id, output.error) for output in made] == [("bad", "RuntimeError: no z"), ("good", None)]
    assert made[0].outputs[0].finish_reason == "error"
    assert aborted == ["bad-0"]
    assert processor.num_live == 1


class GivesNoText(ByteTokenizer):
    """Gives a number for the text of "n" in a stream, and for all texts that hold "m"."""

    def decode_stream(self, prompt_token_ids=(), *, skip_special_tokens=True):
        stream = super().decode_stream(prompt_token_ids, skip_special_tokens=skip_special_tokens)
        step = stream.step
        wrong = {ord("n"): 5, ord("m"): None}
        stream.step = lambda token_id: wrong[token_id] if token_id in wrong else step(token_id)
        return stream

    def decode(self, token_ids, *, skip_special_tokens=True) -> Any:
        return 7 if ord("m") in token_ids else super().decode(token_ids, skip_special_tokens=skip_special_tokens)


@pytest.mark.parametrize("kind", [DELTA, CUMULATIVE, FINAL_ONLY])
@pytest.mark.parametrize(
    ("bad", "params", "gave"),
    [
        (b"xn", {}, 5),
        (b"xn", {"stop": ("xyz",)}, 5),
        (b"xm", {}, 7),
        (b"xm", {"stop": ("xyz",)}, 7),
        (b"mx", {"logprobs": 1}, 7),
    ],
    ids=["stream", "stream, stop string", "open at the end", "open at the end, stop string", "log-probabilities"],
)
def test_what_is_no_text_ends_only_its_own_request(kind, bad, params, gave):
    processor = OutputProcessor(GivesNoText, VirtualClock())
    for name, sampling in (("bad", SamplingParams(**params)), ("good", SamplingParams())):
        processor.add_request(name, f"{name}-0", EngineInput(None, PROMPT, sampling), kind)
    step = [
        EngineCoreOutput("bad-0", [*bad], FinishReason.LENGTH, logprobs=logprobs_of(bad)),
        EngineCoreOutput("good-0", [*b"a"], FinishReason.LENGTH),
    ]
    made, aborted = process(processor, step)
    error = f"PluginError: the tokenizer must give a string, and gave {gave}"
    assert [(output.request_id, output.error) for output in made] == [("bad", error), ("good", None)]
    assert made[1].outputs[0].text == "a"
    assert (aborted, processor.num_live) == ([], 0)


def test_an_abort_of_what_gives_no_text_ends_only_its_own_request():
    processor = OutputProcessor(GivesNoText, VirtualClock())
    for name, token in (("bad", b"m"), ("good", b"a")):
        processor.add_request(name, f"{name}-0", EngineInput(None, PROMPT, SamplingParams()), FINAL_ONLY)
        process(processor, [EngineCoreOutput(f"{name}-0", [*token])])
    outputs, _ = outputs_of(processor.abort_requests(["bad", "good"]))
    assert [(output.outputs[0].finish_reason, output.outputs[0].text) for output in outputs] == [
        ("error", ""),
        ("abort", "a"),
    ]


def test_metrics_are_times_of_the_front_end():
    clock = VirtualClock()
    processor = OutputProcessor(lambda: PLAIN, clock)
    clock.wait(deadline=1.0)
    processor.add_request("r", "r-0", EngineInput("Hi", PROMPT, SamplingParams()), DELTA)
    made = []
    for tokens, when, reason in [([97], 3.0, None), ([98, 99], 4.0, None), ([100], 6.0, FinishReason.LENGTH)]:
        clock.wait(deadline=when)
        output = EngineCoreOutput("r-0", tokens, reason, num_cached_tokens=2 if when == 3.0 else 0)
        made += process(processor, [output])[0]
    metrics = made[-1].metrics
    assert (metrics.time_to_first_token, metrics.e2e_latency, metrics.time_per_output_token) == (2.0, 5.0, 1.0)
    assert (made[-1].num_cached_tokens, metrics.num_output_tokens) == (2, 4)
    assert (made[-1].prompt, made[-1].prompt_token_ids) == ("Hi", PROMPT)


def test_a_live_request_id_is_refused_and_the_live_one_goes_on():
    processor = OutputProcessor(lambda: PLAIN, VirtualClock())
    processor.add_request("r", "r-0", EngineInput(None, PROMPT, SamplingParams()), DELTA)
    with pytest.raises(InvalidRequestError, match="'r' is taken"):
        processor.add_request("r", "r-1", EngineInput(None, PROMPT, SamplingParams()), DELTA)
    made, _ = process(processor, [EngineCoreOutput("r-0", [97])])
    assert texts(made) == ["a"]


def test_nothing_is_kept_of_requests_that_have_ended():
    processor = OutputProcessor(lambda: PLAIN, VirtualClock())
    for number in range(50):
        params = SamplingParams(stop=(f"stop {number}",), logprobs=1)
        processor.add_request("r", f"r-{number}", EngineInput(None, PROMPT, params), DELTA)
        output = EngineCoreOutput(f"r-{number}", [97], FinishReason.LENGTH, logprobs=logprobs_of([97]))
        process(processor, [output])
    left = [value for value in vars(processor).values() if hasattr(value, "__len__")]
    assert [len(value) for value in left] == [0] * len(left)
    assert len(left) >= 2
